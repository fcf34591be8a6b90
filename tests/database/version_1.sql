PRAGMA application_id = 1096054114;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE best (
            graph_hash TEXT NOT NULL,
            target_hash TEXT NOT NULL,
            dtype TEXT NOT NULL,
            scheduler_version TEXT NOT NULL,
            model TEXT NOT NULL,
            target TEXT NOT NULL,
            batch INTEGER NOT NULL,
            run TEXT NOT NULL,
            trial INTEGER NOT NULL,
            latency REAL NOT NULL CHECK (latency > 0),
            record TEXT NOT NULL,
            PRIMARY KEY (graph_hash, target_hash, dtype, scheduler_version)
        );
INSERT INTO "best" VALUES('9f31','77aa','fp16','0.1.0/1/1','resnet50','stcp920',64,'aa00',0,0.01,'{"batch":64,"created":"2026-01-31T12:00:00Z","key":{"dtype":"fp16","graph_hash":"9f31","scheduler_version":"0.1.0/1/1","target_hash":"77aa"},"kind":"best","knobs":{"max_layers":1},"measurement":{"batch":64,"bound":{"ddr_s":2e-06,"matrix_s":4e-06,"vector_s":1e-06},"busy":{},"bytes":{},"ddr_bytes":1000,"energy":null,"gb_bytes":2000,"kernel_counts":{},"kernel_times":{},"kernels":7,"latency":0.01,"matrix_utilization":0.5,"overlap":{},"peak_gb_bytes":1024,"peak_lb_bytes":512,"subgraph_times":[],"tensors":{},"vector_utilization":0.1,"waits":{}},"model":"resnet50","run":"aa00","schedule":"{\"format\": \"autoturbo-schedule\", \"model\": {\"hash\": \"9f31\"}, \"target\": {\"hash\": \"77aa\"}, \"dtype\": \"fp16\", \"knobs\": {\"max_layers\": 1}}","schema":1,"target":"stcp920","trial":0,"versions":{}}');
CREATE TABLE kernels (
            target_hash TEXT NOT NULL,
            scheduler_version TEXT NOT NULL,
            signature TEXT NOT NULL,
            seconds REAL NOT NULL,
            PRIMARY KEY (target_hash, scheduler_version, signature)
        ) WITHOUT ROWID;
INSERT INTO "kernels" VALUES('77aa','0.1.0/1/1','51a9',1.0e-06);
CREATE TABLE runs (
            id TEXT NOT NULL PRIMARY KEY,
            graph_hash TEXT NOT NULL,
            target_hash TEXT NOT NULL,
            dtype TEXT NOT NULL,
            scheduler_version TEXT NOT NULL,
            model TEXT NOT NULL,
            target TEXT NOT NULL,
            state TEXT NOT NULL,
            created TEXT NOT NULL,
            record TEXT NOT NULL
        );
INSERT INTO "runs" VALUES('aa00','9f31','77aa','fp16','0.1.0/1/1','resnet50','stcp920','running','2026-01-31T12:00:00Z','{"batch":64,"created":"2026-01-31T12:00:00Z","id":"aa00","key":{"dtype":"fp16","graph_hash":"9f31","scheduler_version":"0.1.0/1/1","target_hash":"77aa"},"kind":"run","model":"resnet50","model_file":"models/resnet50.onnx","schema":1,"settings":{"effort":"quick","seed":0,"shapes":{"x":[64,3,224,224]},"trials":20},"state":"running","target":"stcp920","versions":{"autoturbo":"0.1.0","python":"3.11.7"}}');
CREATE TABLE trials (
            run TEXT NOT NULL REFERENCES runs (id) DEFERRABLE INITIALLY DEFERRED,
            number INTEGER NOT NULL CHECK (number >= 0),
            latency REAL CHECK (latency > 0),
            record TEXT NOT NULL,
            PRIMARY KEY (run, number)
        );
INSERT INTO "trials" VALUES('aa00',0,0.01,'{"created":"2026-01-31T12:00:00Z","kind":"trial","knobs":{"max_layers":1},"measurement":{"batch":64,"bound":{"ddr_s":2e-06,"matrix_s":4e-06,"vector_s":1e-06},"busy":{},"bytes":{},"ddr_bytes":1000,"energy":null,"gb_bytes":2000,"kernel_counts":{},"kernel_times":{},"kernels":7,"latency":0.01,"matrix_utilization":0.5,"overlap":{},"peak_gb_bytes":1024,"peak_lb_bytes":512,"subgraph_times":[],"tensors":{},"vector_utilization":0.1,"waits":{}},"number":0,"run":"aa00","schema":1}');
INSERT INTO "trials" VALUES('aa00',1,0.005,'{"created":"2026-01-31T12:00:00Z","kind":"trial","knobs":{"max_layers":2},"measurement":{"batch":64,"bound":{"ddr_s":2e-06,"matrix_s":4e-06,"vector_s":1e-06},"busy":{},"bytes":{},"ddr_bytes":1000,"energy":null,"gb_bytes":2000,"kernel_counts":{},"kernel_times":{},"kernels":7,"latency":0.005,"matrix_utilization":0.5,"overlap":{},"peak_gb_bytes":1024,"peak_lb_bytes":512,"subgraph_times":[],"tensors":{},"vector_utilization":0.1,"waits":{}},"number":1,"run":"aa00","schema":1}');
INSERT INTO "trials" VALUES('aa00',2,3.33333333333333354728e-03,'{"created":"2026-01-31T12:00:00Z","kind":"trial","knobs":{"max_layers":3},"measurement":{"batch":64,"bound":{"ddr_s":2e-06,"matrix_s":4e-06,"vector_s":1e-06},"busy":{},"bytes":{},"ddr_bytes":1000,"energy":null,"gb_bytes":2000,"kernel_counts":{},"kernel_times":{},"kernels":7,"latency":0.0033333333333333335,"matrix_utilization":0.5,"overlap":{},"peak_gb_bytes":1024,"peak_lb_bytes":512,"subgraph_times":[],"tensors":{},"vector_utilization":0.1,"waits":{}},"number":2,"run":"aa00","schema":1}');
CREATE INDEX trials_by_latency ON trials (run, latency, number);
COMMIT;
