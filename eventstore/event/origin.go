package event

// OriginFixed names the log in its checkpoints (c2sp.org/tlog-checkpoint): the origin, which is also the name of the key that signs
// them. It is on the stream OriginStream, whose last event counts.
type OriginFixed struct {
	Origin string `json:"origin"`
}

func (OriginFixed) EventType() string { return "origin.fixed.v1" }
