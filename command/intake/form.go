package intake

// What a form answers when the person's phone and email are missing or wrong.
const (
	InvalidAuto   = "auto"   // a browser is refused, and a post of a server is kept
	InvalidReject = "reject" // 400, and nothing is kept
	InvalidKeep   = "keep"   // 200, and the post is quarantined
)

// OnInvalids returns all of them.
func OnInvalids() []string { return []string{InvalidAuto, InvalidReject, InvalidKeep} }
