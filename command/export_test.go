package command

import "time"

// Timeout sets the timeout for recording one sample, and for recording the remaining samples at the end.
func (u *Uses) Timeout(d time.Duration) { u.timeout = d }
