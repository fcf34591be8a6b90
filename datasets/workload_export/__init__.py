"""Make the workload files from real library models: ``python -m ... [NAME...]``.

Needs torch, torchvision, timm, transformers, onnxscript and onnxslim, none of which the package
itself depends on for this; they are imported inside the functions that use them. Steps, one
module each: `recipes` says what to build, `compose` and the network modules build what no library
has, `randomise` breaks the false structure of fresh weights, `exporters` runs torch's exporters,
`simplify` removes what is left of shape arithmetic, `pack` moves weights out of the file.
"""
