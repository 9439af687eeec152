package command

import "time"

// Patience sets how long recording may take, of one sample and of all that are left at the end.
func (u *Uses) Patience(d time.Duration) { u.patience = d }
