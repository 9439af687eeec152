package audit

// Peaks returns the number of hashes of an edge.
func (e *Edge) Peaks() int { return len(e.peaks) }
