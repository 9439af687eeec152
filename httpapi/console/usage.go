package console

import (
	"time"

	"github.com/leadlog/leadlog/query"
)

// usageDays is how many days usage is shown of: as many as deliveries are kept.
const usageDays = 30

func (v *visit) usage() (screen, error) {
	days, err := v.usageDays()
	return screen{name: "usage", title: "Usage", data: days, live: true}, err
}

func (v *visit) usageDays() ([]query.UsageDay, error) {
	today := v.Now().UTC().Truncate(24 * time.Hour)
	return v.Query.Usage(v.ctx, v.identity.Account, today.AddDate(0, 0, 1-usageDays), usageDays)
}
