"""One module per evidence layer, named by the key of the layer: profile and results in, records out."""
