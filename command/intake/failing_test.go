package intake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore/event"
)

// end ends an arrival in a run: q quarantined, p kept by a pause, c captured, r refused.
func end(run *intake.Run, how rune, at time.Time) {
	switch how {
	case 'q':
		run.Quarantine("arrival "+at.Format(time.Kitchen),
			[]event.ArrivalReason{{Field: "phone", Message: "is missing"}}, at)
	case 'p':
		run.Quarantine("paused", []event.ArrivalReason{
			{Field: "phone", Message: "is missing"}, {Field: "intake", Message: "was paused when it arrived"},
		}, at)
	case 'c':
		run.Capture(at)
	case 'r':
		run.Refuse()
	}
}

func TestRun_ReportedOnce(t *testing.T) {
	t.Parallel()
	for outcomes, want := range map[string]string{
		"":                 "",
		"qq":               "",
		"ccq":              "",
		"qqq":              "failing",
		"qqqqqq":           "failing",
		"qcqcqcq":          "",
		"qqcqq":            "",
		"qqrq":             "",
		"qprpq":            "",
		"pppppp":           "",
		"qpqpq":            "failing",
		"qqqc":             "failing recovered",
		"qqqccc":           "failing recovered",
		"qqqrrr":           "failing",
		"qqqrqc":           "failing recovered",
		"qqqpc":            "failing recovered",
		"qqqcqq":           "failing recovered",
		"qqqcqqq":          "failing recovered failing",
		"qqqqcqrqcqqqqccc": "failing recovered failing recovered",
	} {
		s, _ := live(t, form)
		var run intake.Run
		got := ""
		for i, how := range outcomes {
			at := created.Add(time.Duration(i+1) * time.Minute)
			end(&run, how, at)
			for range 2 {
				if fact, due := s.Recover(run); due {
					got += " recovered"
					s = evolveAfter(s, at.Sub(created), fact)
				}
				if fact, due := s.ReportFailing(run); due {
					got += " failing"
					s = evolveAfter(s, at.Sub(created), fact)
					require.Equal(t, "phone is missing", fact.Error)
				}
			}
		}
		if want != "" {
			want = " " + want
		}
		require.Equal(t, want, got, outcomes)
		require.Equal(t, s.Failing, s.Record("id").State == intake.Failing)
		require.Equal(t, s.Failing, s.LastError != "")
	}
}

// A process whose view is behind decides on an earlier run. Reports alternate nevertheless, and a run has one.
func TestRun_StaleViews(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s, _ := live(t, form)
		runs := []intake.Run{{}}
		reported := map[time.Time]bool{}
		for i := range rapid.IntRange(0, 60).Draw(r, "steps") {
			at := created.Add(time.Duration(i+1) * time.Minute)
			run := runs[len(runs)-1]
			end(&run, rapid.SampledFrom([]rune("qqqqcrp")).Draw(r, "how"), at)
			runs = append(runs, run)
			seen := runs[rapid.IntRange(0, len(runs)-1).Draw(r, "seen")]
			if fact, due := s.ReportFailing(seen); due {
				require.False(t, s.Failing)
				require.False(t, reported[fact.Since], "a run is reported once")
				reported[fact.Since] = true
				s = evolveAfter(s, at.Sub(created), fact)
			}
			if fact, due := s.Recover(seen); due {
				require.True(t, s.Failing)
				require.False(t, fact.CapturedAt.Before(s.FailingSince), "a capture before the failure does not end it")
				s = evolveAfter(s, at.Sub(created), fact)
			}
		}
	})
}

func TestRun_ClockOfCaptureBehind(t *testing.T) {
	t.Parallel()
	s, _ := live(t, form)
	var run intake.Run
	for i, how := range "qqq" {
		end(&run, how, created.Add(time.Duration(i+1)*time.Minute))
	}
	failing, due := s.ReportFailing(run)
	require.True(t, due)
	s = evolveAfter(s, time.Hour, failing)
	end(&run, 'c', created)
	_, due = s.Recover(run)
	require.True(t, due)
}
