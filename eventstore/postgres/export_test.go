package postgres

import "time"

// NotifyOnClose changes how long Close waits for the last notification.
func (s *Store) NotifyOnClose(timeout time.Duration) { s.notifier.last = timeout }
