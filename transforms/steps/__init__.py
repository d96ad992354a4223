"""What a worker does: embedding units, building and updating an index, gathering, fitting. No Beam
here.
"""
