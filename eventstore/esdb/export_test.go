package esdb

import "time"

// AwaitSubscription changes how long an append waits for the subscription before it reads.
func (s *Store) AwaitSubscription(limit time.Duration) { s.observed.late = limit }
