package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/projection/schema"
)

// Account is an account's plan and settings.
type Account struct {
	AccountID string   `json:"accountId"`
	Name      string   `json:"name"`
	Features  []string `json:"features"`
	Stages    []string `json:"stages"`
	Region    string   `json:"region"`
	Currency  string   `json:"currency"`  // ISO 4217, of the values of leads
	RateLimit *float64 `json:"rateLimit"` // null: the service's default
	RateBurst *int     `json:"rateBurst"`
	// TokensSeeLeads lets answers to API tokens show what earlier arrivals stored.
	TokensSeeLeads bool `json:"tokensSeeLeads"`
	// VisitorDays is how long a visitor whom no lead is linked with is remembered after the last activity.
	VisitorDays int `json:"visitorDays"`
	// Quarantine keeps captures by the API whose fields are refused.
	Quarantine bool `json:"quarantine"`
	// QuarantineDays is how long the body of an arrival is kept.
	QuarantineDays int `json:"quarantineDays"`
	// WonStages are those that count as a conversion.
	WonStages []string `json:"wonStages"`
	// StoragePerDay is how many bytes may be appended to the log in a day; 0 is no limit.
	StoragePerDay int `json:"storagePerDay"`
	// IgnoredContacts are phones, emails, *@domain and local@* that identify no person.
	IgnoredContacts []string `json:"ignoredContacts"`
	// SharedAfter is how many phones, or emails, of one lead make its emails, or phones, shared; 0 is never.
	SharedAfter int `json:"sharedAfter"`
	// RetentionDays is how long a lead is kept after its last arrival or change; 0 is without end.
	RetentionDays int      `json:"retentionDays"`
	KeepStages    []string `json:"keepStages"` // those whose leads are kept without end
	// MaskInConsole masks personal data in the console until they are revealed.
	MaskInConsole bool `json:"maskInConsole"`
	// JWTNotBefore is the time before which JWTs must not have been issued; null: they may be of any time.
	JWTNotBefore Timestamp `json:"jwtNotBefore"`
	CreatedAt    Timestamp `json:"createdAt"`
	UpdatedAt    Timestamp `json:"updatedAt"`
}

// Account returns an account's plan and settings. The error is ErrNotFound when it is not provisioned.
func (r *Reader) Account(ctx context.Context, id string) (Account, error) {
	if !account.ValidID(id) {
		return Account{}, ErrNotFound
	}
	return one(ctx, r, scanAccount, `
		SELECT account_id, name, features, stages, region, currency, rate_limit, rate_burst, tokens_see_leads,
		  visitor_days,
		       quarantine, quarantine_days, won_stages, storage_per_day, ignored_contacts, shared_after, retention_days,
		       keep_stages, mask_in_console,
		       jwt_not_before, created_at, updated_at
		  FROM views.account
		 WHERE account_id = $1`, id)
}

func scanAccount(row pgx.CollectableRow) (a Account, err error) {
	err = row.Scan(&a.AccountID, &a.Name, jsonOf{&a.Features}, jsonOf{&a.Stages}, &a.Region, &a.Currency, &a.RateLimit,
		&a.RateBurst, &a.TokensSeeLeads,
		&a.VisitorDays, &a.Quarantine, &a.QuarantineDays, jsonOf{&a.WonStages}, &a.StoragePerDay,
		&a.IgnoredContacts, &a.SharedAfter, &a.RetentionDays, jsonOf{&a.KeepStages}, &a.MaskInConsole,
		&a.JWTNotBefore, &a.CreatedAt, &a.UpdatedAt)
	return a, err
}

// UsageDay is how much an account did on a day, UTC.
type UsageDay struct {
	Day        Timestamp `json:"day"`        // its first moment
	Captures   int       `json:"captures"`   // arrivals that came alone, with any outcome
	BatchLines int       `json:"batchLines"` // arrivals that were lines of a batch or of an imported file, likewise
	Refused    int       `json:"refused"`    // those of both that were answered with a conflict
	Deliveries int       `json:"deliveries"` // events queued for endpoints
}

const usage = `
	SELECT days.day::timestamp AT TIME ZONE 'UTC', coalesce(arrivals - lines, 0)::bigint, coalesce(lines, 0)::bigint,
	       coalesce(refused, 0)::bigint, coalesce(queued, 0)::bigint
	  FROM (SELECT $2::date + n AS day FROM generate_series(0, $3::integer - 1) AS n) AS days
	  LEFT JOIN (SELECT day, sum(recorded) AS arrivals, sum(lines) AS lines, sum(refused) AS refused
	               FROM views.source_day WHERE account = $1 AND day >= $2::date GROUP BY day) AS arrived USING (day)
	  LEFT JOIN delivery.account_day AS sent ON sent.account = $1 AND sent.day = days.day
	 ORDER BY days.day DESC`

// UsageDays is how many days usage is reported of: as many as deliveries are kept.
const UsageDays = 30

// Usage returns how much an account did on each of the last UsageDays days in UTC, the latest first.
func (r *Reader) Usage(ctx context.Context, account string) ([]UsageDay, error) {
	first := r.now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1-UsageDays)
	rows, err := r.pool.Query(ctx, usage, account, first, UsageDays)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d UsageDay, err error) {
		err = row.Scan(&d.Day, &d.Captures, &d.BatchLines, &d.Refused, &d.Deliveries)
		return d, err
	})
	return found, schema.Unavailable(err)
}
