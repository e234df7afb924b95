"""History used again: stored submissions scored anew, sealed batches built anew."""
