package intake

import "github.com/leadlog/leadlog/eventstore/event"

// Splits reports whether intakes of a kind may have an expression of a post's arrivals. The posts of the others have a known form.
func Splits(kind string) bool { return kind == Form || kind == StandardWebhooks || kind == Webhook }

// wrongEach returns why the expression of a post's arrivals is invalid, or "".
func wrongEach(event.IntakeSettings) string { return "" }
