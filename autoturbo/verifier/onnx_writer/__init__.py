"""Write a schedule and its model as ONNX: whole models, their functions, and parts of operators."""
