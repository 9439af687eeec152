package attribution

import (
	"cmp"
	"math/big"
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Costs has what days of advertising cost: of each day and key the amount that was set last.
type Costs map[costCell]uint64 // in ValueUnits

type costCell struct {
	day string
	event.SpendKey
}

// Set sets amounts.
func (c Costs) Set(set event.SpendSet) {
	for _, row := range set.Rows {
		c[costCell{row.Day, row.SpendKey}], _ = ParseValue(row.Amount) // written so by the event
	}
}

// HasCost reports whether a key is one that costs have.
func (k Key) HasCost() bool { return k != ByIntake && k != ByCredential }

// AddCost adds what a key cost on a day, such as 2026-01-31, if the day begins within Since and Until.
func (r *Report) AddCost(by Key, day string, key event.SpendKey, units uint64) {
	begins, err := time.Parse(time.DateOnly, day)
	if err != nil || !by.HasCost() || !r.rules.Counts(begins.UnixMilli()) {
		return
	}
	channel := Channel{Source: key.Source, Medium: key.UTMMedium, Campaign: key.UTMCampaign, UTMSource: key.UTMSource}
	for _, row := range []*Row{r.row(cmp.Or(channel.Key(by), None)), &r.total} {
		row.Cost.add(units)
		row.HasCost = true
	}
}

// AddCosts adds all costs.
func (r *Report) AddCosts(by Key, costs Costs) {
	for cell, units := range costs {
		r.AddCost(by, cell.day, cell.SpendKey, units)
	}
}

// CostPerConversion returns the cost by the conversions with 4 decimals, half rounded up. Known is false without a cost
// or a conversion.
func (r Row) CostPerConversion() (decimal string, known bool) {
	return quotient(r.Cost, ConversionUnits, r.Conversions, r.HasCost)
}

// ReturnOnCost returns the value by the cost with 4 decimals, half rounded up. Known is false without a cost, or if it
// is 0.
func (r Row) ReturnOnCost() (decimal string, known bool) {
	return quotient(r.Value, ValueUnits, r.Cost, r.HasCost)
}

// quotient returns of times scale by another sum, in ValueUnits.
func quotient(of Sum, scale uint64, by Sum, known bool) (string, bool) {
	if !known || by == (Sum{}) {
		return "", false
	}
	divisor := by.integer()
	units := new(big.Int).Mul(of.integer(), new(big.Int).SetUint64(2*scale))
	units.Add(units, divisor).Div(units, new(big.Int).Lsh(divisor, 1))
	return decimal(units, 4), true
}
