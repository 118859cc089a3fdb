"""One module per evidence layer, named by the layer's key: from profile and results to records."""
