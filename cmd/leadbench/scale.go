package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// scaleSimulation works out what so many leads take, without measuring anything: it spreads accounts of very different
// sizes over databases, day by day, and looks at the fullest. deploy/docs/scale.md says where its defaults come from.
type scaleSimulation struct {
	Leads     []float64 `default:"1000000,10000000,100000000,1000000000" help:"Leads in all, a row of the table each."`
	Accounts  int       `default:"10000" help:"Accounts that they belong to. Their sizes follow Zipf's law."`
	Skew      float64   `default:"1.1" help:"Exponent of that law, over 1: the larger, the more belongs to the largest."`
	Years     float64   `default:"3" help:"In which they came, growing evenly from nothing: the last day is twice the mean."`
	Repeats   float64   `default:"1.0" help:"Arrivals that merge or are refused, for each that opens a lead."`
	Peak      float64   `default:"8" help:"Busiest second of a day over its mean."`
	Rate      float64   `default:"4000" help:"Captures a second of one database that may be counted on."`
	LeadBytes float64   `default:"3800" help:"Log, keys, views and their indexes of an arrival that opens a lead."`
	MoreBytes float64   `default:"2600" help:"The same of one that does not."`
	Disk      float64   `default:"2000" help:"Largest disk of one database, in GB, filled to 70 %."`
	Month     float64   `default:"700" help:"What one database with its standby and two processes of leadlog costs a month."`
	Gigabyte  float64   `default:"0.12" help:"What a GB costs a month on disk, of which there are two: with the standby."`
	Seed      uint64    `default:"1" help:"Of the accounts' sizes and places."`
}

// Run is leadbench scale.
func (s *scaleSimulation) Run() error {
	if s.Skew <= 1 || s.Accounts < 1 || s.Years <= 0 || s.Rate <= 0 || s.Disk <= 0 {
		return fmt.Errorf("--skew must be over 1, --accounts, --years, --rate and --disk over 0")
	}
	t := newTable("leads", "arrivals", "GB", "mean/s", "busiest/s", "databases", "fullest, GB", "fullest/s", "a month")
	for _, leads := range s.Leads {
		p := s.plan(leads)
		t.row(short(leads), short(p.arrivals), count(p.gigabytes), times(p.mean), count(p.busiest),
			count(float64(p.databases)), count(p.fullest.gigabytes), count(p.fullest.busiest), count(p.cost))
	}
	t.print()
	return nil
}

// burden is what one database bears.
type burden struct{ share, gigabytes, busiest float64 }

type plan struct {
	arrivals, gigabytes, mean, busiest, cost float64
	databases                                int
	fullest                                  burden
}

// plan finds the fewest databases of which none is too full or too busy. An account has its place in one of them, since
// what recognises a person is one append.
func (s *scaleSimulation) plan(leads float64) plan {
	p := plan{arrivals: leads * (1 + s.Repeats)}
	p.gigabytes = (leads*s.LeadBytes + leads*s.Repeats*s.MoreBytes) / 1e9
	p.mean = 2 * p.arrivals / (s.Years * 365 * (24 * time.Hour).Seconds()) // of the last day
	p.busiest = p.mean * s.Peak
	sizes := s.sizes()
	for p.databases = 1; ; p.databases += max(1, p.databases/20) {
		p.fullest = s.fullest(sizes, p)
		if s.bears(p.fullest) || p.fullest.share <= sizes[0]*1.0001 { // more of them would not part the largest account
			break
		}
	}
	p.cost = float64(p.databases)*s.Month + 2*s.Gigabyte*p.gigabytes/0.7
	return p
}

func (s *scaleSimulation) bears(l burden) bool {
	return l.gigabytes <= 0.7*s.Disk && l.busiest <= s.Rate
}

// fullest puts each account, the largest first, where most room is, as an operator does who moves accounts about.
func (s *scaleSimulation) fullest(sizes []float64, p plan) burden {
	shares := make([]float64, p.databases)
	for _, size := range sizes {
		least := 0
		for i := range shares {
			if shares[i] < shares[least] {
				least = i
			}
		}
		shares[least] += size
	}
	most := slices.Max(shares)
	return burden{most, most * p.gigabytes, most * p.busiest}
}

// sizes are the accounts' shares of all leads, the largest first.
func (s *scaleSimulation) sizes() []float64 {
	random := rand.New(rand.NewPCG(s.Seed, 0))
	sizes, sum := make([]float64, s.Accounts), 0.0
	for i := range sizes {
		sizes[i] = math.Pow(float64(i+1), -s.Skew) * (0.5 + random.Float64())
		sum += sizes[i]
	}
	for i := range sizes {
		sizes[i] /= sum
	}
	slices.SortFunc(sizes, func(a, b float64) int { return cmp.Compare(b, a) })
	return sizes
}

func short(n float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= unit.size {
			return fmt.Sprintf("%.4g %s", n/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.4g", n)
}
