package audit

// Peaks is how many hashes an edge holds.
func (e *Edge) Peaks() int { return len(e.peaks) }
