"""Everything the jobs are made of, in layers: space, pooling, calibration, encoder, store, index, search, beam."""
