package quota

// Kind is the kind of a request for its quota. Every route and every page of the console declares one.
type Kind int

const (
	_           Kind = iota // not declared
	Free                    // no account is known: probes, documents, signing in
	Capture                 // captures a lead
	Batch                   // captures leads: one for each line
	Activity                // records activity of a visitor
	Arrival                 // is posted to an intake
	PageView                // records activity of a visitor, posted to an intake
	Write                   // any other write
	Read                    // reads views
	Stream                  // reads the events of a stream
	StreamWrite             // a write that reads or sends the events of streams
)

// Policy names the bucket of a kind, in headers and metrics; none for Free.
func (k Kind) Policy() string {
	switch k {
	case Capture, Batch:
		return "capture"
	case Activity, PageView:
		return "activity"
	case Arrival:
		return "arrival"
	case Write, StreamWrite:
		return "write"
	case Read, Stream:
		return "read"
	}
	return ""
}

// Reads reports whether a kind never appends, and so has the larger quota of reads.
func (k Kind) Reads() bool { return k == Read || k == Stream }

// Stores reports whether a kind counts against the account's storage for a day. Others append little, or are how its
// owner helps himself.
func (k Kind) Stores() bool {
	return k == Capture || k == Batch || k == Activity || k.AtIntake()
}

// AtIntake reports whether a kind is posted to the public address of an intake.
func (k Kind) AtIntake() bool { return k == Arrival || k == PageView }

// Streams reports whether an account may have only a few of a kind under way at a time.
func (k Kind) Streams() bool { return k == Stream || k == StreamWrite }
