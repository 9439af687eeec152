package command

import "time"

// Timeout sets how long recording may take, of one sample and of all that are left at the end.
func (u *Uses) Timeout(d time.Duration) { u.timeout = d }
