package delivery

// row is a delivery that a courier has in hand.
type row struct {
	seq                         int64
	id, webhookID, kind, stream string
	revision, position          int64
	attempts                    int
	url                         string
	dead                        bool // its endpoint is deleted
}
