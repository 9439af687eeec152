// Package attribution divides conversions, which are leads that were won, among the touches before them.
//
// It is pure and exact: amounts are integers of small units, and each conversion is divided without a remainder, so the
// rows of a report add up to its total. The same touches and conversions give the same report on every machine and in
// any order.
package attribution

import (
	"cmp"
	"slices"
	"time"
)

// Model is a rule by which a conversion is divided among its touches.
type Model string

// The models.
const (
	First     Model = "first"
	Last      Model = "last"
	Linear    Model = "linear"     // in equal parts
	Position  Model = "position"   // 40 % the first, 40 % the last, 20 % those between; two share equally
	TimeDecay Model = "time_decay" // half as much for each half-life before the last touch
)

// Models lists the models.
func Models() []string {
	return []string{string(First), string(Last), string(Linear), string(Position), string(TimeDecay)}
}

// Key is the property of touches that groups a report's rows.
type Key string

// The keys.
const (
	BySource     Key = "source"
	ByMedium     Key = "medium"
	ByCampaign   Key = "campaign"
	ByUTMSource  Key = "utmSource"
	ByIntake     Key = "intake"
	ByCredential Key = "credential"
)

// Keys lists the keys.
func Keys() []string {
	return []string{
		string(BySource), string(ByMedium), string(ByCampaign), string(ByUTMSource), string(ByIntake),
		string(ByCredential),
	}
}

// Names of rows without a key.
const (
	None         = "(none)"         // touches without the key
	Unattributed = "(unattributed)" // conversions without an eligible touch
)

// Bounds and defaults of a report's durations.
const (
	Day             = 24 * time.Hour
	MaxWindow       = 365 * Day
	DefaultWindow   = 90 * Day
	MinHalfLife     = time.Hour
	MaxHalfLife     = 365 * Day
	DefaultHalfLife = 7 * Day
)

// Rules are the parameters of a report.
type Rules struct {
	Model        Model
	Since, Until time.Time     // of the conversions: inclusive and exclusive; zero sets no bound
	Window       time.Duration // how long before a conversion a touch counts, both ends inclusive
	HalfLife     time.Duration // of TimeDecay
}

// Touch is an arrival or visit. Touches are in order by their time, then by their position.
type Touch struct {
	At       int64 // Unix milliseconds
	Position int64 // on the log
	Key      string
}

func compareTouches(a, b Touch) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Position, b.Position))
}

// Conversion is a lead that was won.
type Conversion struct {
	Lead    string
	At      int64   // Unix milliseconds
	Value   uint64  // in ValueUnits
	Touches []Touch // of the lead, in any order, eligible or not
}

// Counts reports whether a conversion is within Since and Until.
func (r Rules) Counts(at int64) bool {
	return (r.Since.IsZero() || at >= ceilMilli(r.Since)) && (r.Until.IsZero() || at < ceilMilli(r.Until))
}

// ceilMilli is the first millisecond that is not before a time.
func ceilMilli(t time.Time) int64 {
	milli := t.UnixMilli()
	if time.UnixMilli(milli).Before(t) {
		milli++
	}
	return milli
}

// Eligible returns the touches of a conversion that share it, in order. It may reorder those of the conversion.
func (r Rules) Eligible(c Conversion) []Touch {
	if !slices.IsSortedFunc(c.Touches, compareTouches) {
		slices.SortFunc(c.Touches, compareTouches)
	}
	begin, end := 0, len(c.Touches)
	for end > 0 && c.Touches[end-1].At > c.At {
		end--
	}
	for begin < end && c.Touches[begin].At < c.At-r.Window.Milliseconds() {
		begin++
	}
	return c.Touches[begin:end]
}

// Row is a row of a report. The total is one without a key.
type Row struct {
	Key         string
	Touches     int64 // eligible ones, with or without credit
	Conversions Sum   // in ConversionUnits
	Value       Sum   // in ValueUnits
	Cost        Sum   // in ValueUnits, if HasCost
	HasCost     bool
}

// Report adds conversions up.
type Report struct {
	rules Rules
	rows  map[string]*Row
	total Row
	// Of one conversion, for the next one to use their memory.
	weights            []uint64
	conversions, value []uint64
	remainders         []remainder
}

// NewReport returns an empty report.
func NewReport(rules Rules) *Report { return &Report{rules: rules, rows: map[string]*Row{}} }

// Add adds a conversion, if it counts. It may reorder the touches.
func (r *Report) Add(c Conversion) {
	if !r.rules.Counts(c.At) {
		return
	}
	r.total.Conversions.add(ConversionUnits)
	r.total.Value.add(c.Value)
	touches := r.rules.Eligible(c)
	if len(touches) == 0 {
		row := r.row(Unattributed)
		row.Conversions.add(ConversionUnits)
		row.Value.add(c.Value)
		return
	}
	r.divide(touches, c.Value)
	for i := range touches {
		row := r.row(cmp.Or(touches[i].Key, None))
		row.Touches++
		row.Conversions.add(r.conversions[i])
		row.Value.add(r.value[i])
	}
}

// divide divides a conversion and its value among touches, which are in order.
func (r *Report) divide(touches []Touch, value uint64) {
	r.weights = r.rules.appendWeights(r.weights[:0], touches)
	r.conversions, r.remainders = appendShares(r.conversions[:0], r.remainders, ConversionUnits, r.weights)
	r.value, r.remainders = appendShares(r.value[:0], r.remainders, value, r.weights)
}

func (r *Report) row(key string) *Row {
	row := r.rows[key]
	if row == nil {
		row = &Row{Key: key}
		r.rows[key] = row
	}
	return row
}

// Rows returns a row for each key, sorted by the keys' bytes.
func (r *Report) Rows() []Row {
	rows := make([]Row, 0, len(r.rows))
	for _, row := range r.rows {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Key, b.Key) })
	return rows
}

// Total returns the sum of all rows. Its Touches are those of all rows.
func (r *Report) Total() Row {
	total := r.total
	for _, row := range r.rows {
		total.Touches += row.Touches
	}
	return total
}

// Credit is the part of a conversion that a touch has.
type Credit struct {
	Touch
	Conversions uint64 // in ConversionUnits
	Value       uint64 // in ValueUnits
}

// Credits divides one conversion, whether or not it is within Since and Until.
func (r Rules) Credits(c Conversion) []Credit {
	touches := r.Eligible(c)
	if len(touches) == 0 {
		return nil
	}
	report := Report{rules: r}
	report.divide(touches, c.Value)
	credits := make([]Credit, len(touches))
	for i := range touches {
		credits[i] = Credit{touches[i], report.conversions[i], report.value[i]}
	}
	return credits
}
