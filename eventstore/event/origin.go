package event

// OriginFixed names the log in its checkpoints (c2sp.org/tlog-checkpoint): the origin, which is also the name of the
// key that signs them. The last event of the stream OriginStream has the current name.
type OriginFixed struct {
	Origin string `json:"origin"`
}

func (OriginFixed) EventType() string { return "origin.fixed.v1" }
