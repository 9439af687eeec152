package account

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

var defaultStages = []string{"new", "contacted", "qualified", "negotiation", "won", "lost"}

func knownRegion(region string) bool { return slices.Contains([]string{"IN", "DE", "US"}, region) }

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = "name" + strconv.Itoa(i)
	}
	return list
}

func TestConfigure_Normalizes(t *testing.T) {
	t.Parallel()
	base := event.AccountConfigured{Features: []string{}, Stages: defaultStages, Region: "IN", Currency: "INR"}
	with := func(change func(*event.AccountConfigured)) event.AccountConfigured {
		c := base
		change(&c)
		return c
	}
	for _, c := range []struct {
		name string
		in   Settings
		want event.AccountConfigured
	}{
		{"no settings: the default stages and region", Settings{}, base},
		{"an empty list of stages: the default ones", Settings{Stages: []string{}}, base},
		{"a name is trimmed", Settings{Name: "  Acme "}, with(func(c *event.AccountConfigured) { c.Name = "Acme" })},
		{"a name of 200 characters", Settings{Name: strings.Repeat("é", 200)}, with(func(c *event.AccountConfigured) {
			c.Name = strings.Repeat("é", 200)
		})},
		{"features", Settings{Features: []string{" crm_api", "beta-2"}}, with(func(c *event.AccountConfigured) {
			c.Features = []string{"crm_api", "beta-2"}
		})},
		{"features differ by case", Settings{Features: []string{"a", "A"}}, with(func(c *event.AccountConfigured) {
			c.Features = []string{"a", "A"}
		})},
		{"50 features", Settings{Features: names(50)}, with(func(c *event.AccountConfigured) {
			c.Features = names(50)
		})},
		{
			"stages in their order and spelling", Settings{Stages: []string{"Zeta ", "alpha", "In Talks"}},
			with(func(c *event.AccountConfigured) { c.Stages = []string{"Zeta", "alpha", "In Talks"} }),
		},
		{"50 stages", Settings{Stages: names(50)}, with(func(c *event.AccountConfigured) { c.Stages = names(50) })},
		{
			"a stage of 50 characters", Settings{Stages: []string{strings.Repeat("é", 50)}},
			with(func(c *event.AccountConfigured) { c.Stages = []string{strings.Repeat("é", 50)} }),
		},
		{
			"a stage of 50 decomposed characters", Settings{Stages: []string{strings.Repeat("e\u0301", 50)}},
			with(func(c *event.AccountConfigured) { c.Stages = []string{strings.Repeat("e\u0301", 50)} }),
		},
		{
			"a name of 200 decomposed characters", Settings{Name: strings.Repeat("e\u0301", 200)},
			with(func(c *event.AccountConfigured) { c.Name = strings.Repeat("e\u0301", 200) }),
		},
		{"a region in any case", Settings{Region: " de "}, with(func(c *event.AccountConfigured) {
			c.Region, c.Currency = "DE", "EUR"
		})},
		{
			"a currency in any case", Settings{Currency: " usd "},
			with(func(c *event.AccountConfigured) { c.Currency = "USD" }),
		},
		{"a region with a currency", Settings{Region: "US"}, with(func(c *event.AccountConfigured) {
			c.Region, c.Currency = "US", "USD"
		})},
		{"a rate of 0 is no limit", Settings{RateLimit: new(0.0)}, with(func(c *event.AccountConfigured) {
			c.RateLimit = new(0.0)
		})},
		{
			"a rate below one a second", Settings{RateLimit: new(0.5), RateBurst: new(1)},
			with(func(c *event.AccountConfigured) { c.RateLimit, c.RateBurst = new(0.5), new(1) }),
		},
		{
			"the highest rate", Settings{RateLimit: new(1e6), RateBurst: new(1000000)},
			with(func(c *event.AccountConfigured) { c.RateLimit, c.RateBurst = new(1e6), new(1000000) }),
		},
		{
			"quarantine", Settings{Quarantine: new(true), QuarantineDays: new(365)},
			with(func(c *event.AccountConfigured) { c.Quarantine, c.QuarantineDays = true, 365 }),
		},
		{"storage without a limit", Settings{StoragePerDay: new(0)}, with(func(c *event.AccountConfigured) {
			c.StoragePerDay = new(0)
		})},
		{"most storage", Settings{StoragePerDay: new(1 << 40)}, with(func(c *event.AccountConfigured) {
			c.StoragePerDay = new(1 << 40)
		})},
		{"won stages in the account's spelling", Settings{
			Stages: []string{"New", "Sold", "Paid"}, WonStages: []string{"paid ", "SOLD"},
		}, with(func(c *event.AccountConfigured) {
			c.Stages, c.WonStages = []string{"New", "Sold", "Paid"}, []string{"Paid", "Sold"}
		})},
		{
			"the default won stage need not be a stage",
			Settings{
				Stages: []string{"New", "Sold"}, WonStages: []string{"won"},
			}, with(func(c *event.AccountConfigured) { c.Stages = []string{"New", "Sold"} }),
		},
		{"no won stages: the default ones", Settings{WonStages: []string{}}, base},
		{"retention", Settings{RetentionDays: new(30)}, with(func(c *event.AccountConfigured) {
			c.RetentionDays = 30
		})},
		{"the longest retention", Settings{RetentionDays: new(3650)}, with(func(c *event.AccountConfigured) {
			c.RetentionDays = 3650
		})},
		{"no retention", Settings{RetentionDays: new(0)}, base},
		{
			"kept stages in the account's spelling", Settings{KeepStages: []string{"LOST ", "won"}},
			with(func(c *event.AccountConfigured) { c.KeepStages = []string{"lost", "won"} }),
		},
		{"no kept stage", Settings{KeepStages: []string{}}, with(func(c *event.AccountConfigured) {
			c.KeepStages = []string{}
		})},
		{"kept stages that are the won stages: the default ones", Settings{KeepStages: []string{"won"}}, base},
	} {
		got, err := State{}.Configure(c.in, knownRegion)
		require.NoError(t, err, c.name)
		require.NotNil(t, got, c.name)
		require.Equal(t, c.want, *got, c.name)
	}
}

func TestConfigure_Refuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		in    Settings
		field string
	}{
		{"a name of 201 characters", Settings{Name: strings.Repeat("é", 201)}, "name"},
		{"a feature twice", Settings{Features: []string{"crm_api", "crm_api "}}, "features"},
		{"a blank feature", Settings{Features: []string{" "}}, "features"},
		{"a feature with a space", Settings{Features: []string{"crm api"}}, "features"},
		{"a feature of 65 characters", Settings{Features: []string{strings.Repeat("f", 65)}}, "features"},
		{"51 features", Settings{Features: names(51)}, "features"},
		{"stages that are equal", Settings{Stages: []string{"new", "new"}}, "stages"},
		{"stages equal but for case", Settings{Stages: []string{"new", "New"}}, "stages"},
		{"stages equal but for case, beyond ASCII", Settings{Stages: []string{"ÉTÉ", "été"}}, "stages"},
		{"stages equal but for the form of sigma", Settings{Stages: []string{"τέλος", "ΤΈΛΟΣ"}}, "stages"},
		{"stages equal but for the Kelvin sign", Settings{Stages: []string{"k", "\u212a"}}, "stages"},
		{"stages equal but for how an accent is encoded", Settings{Stages: []string{"\u00e9", "E\u0301"}}, "stages"},
		{"stages equal but for white space", Settings{Stages: []string{"new", " new"}}, "stages"},
		{"a blank stage", Settings{Stages: []string{"new", "  "}}, "stages"},
		{"a stage of 51 characters", Settings{Stages: []string{strings.Repeat("é", 51)}}, "stages"},
		{"a stage with a control character", Settings{Stages: []string{"a\x07b"}}, "stages"},
		{"51 stages", Settings{Stages: names(51)}, "stages"},
		{"an unknown region", Settings{Region: "XX"}, "region"},
		{"an unknown currency", Settings{Currency: "QQQ"}, "currency"},
		{"a currency by its sign", Settings{Currency: "₹"}, "currency"},
		{"a region by its long name", Settings{Region: "India"}, "region"},
		{"a negative rate", Settings{RateLimit: new(-0.1)}, "rateLimit"},
		{"a rate above the maximum", Settings{RateLimit: new(1e6 + 1)}, "rateLimit"},
		{"a rate that is no number", Settings{RateLimit: new(math.NaN())}, "rateLimit"},
		{"an infinite rate", Settings{RateLimit: new(math.Inf(1))}, "rateLimit"},
		{"a burst of 0 would refuse everything", Settings{RateBurst: new(0)}, "rateBurst"},
		{"a negative burst", Settings{RateBurst: new(-1)}, "rateBurst"},
		{"a burst above the maximum", Settings{RateBurst: new(1000001)}, "rateBurst"},
		{"arrivals for no day", Settings{QuarantineDays: new(0)}, "quarantineDays"},
		{"arrivals for 366 days", Settings{QuarantineDays: new(366)}, "quarantineDays"},
		{"negative storage", Settings{StoragePerDay: new(-1)}, "storagePerDay"},
		{"storage above the maximum", Settings{StoragePerDay: new(1<<40 + 1)}, "storagePerDay"},
		{"a negative number of phones", Settings{SharedAfter: new(-1)}, "sharedAfter"},
		{"more phones than a lead can have", Settings{SharedAfter: new(1001)}, "sharedAfter"},
		{
			"an ignored contact that is none", Settings{IgnoredContacts: []string{"test@test.com", "call me"}},
			"ignoredContacts",
		},
		{"too many ignored contacts", Settings{IgnoredContacts: manyEmails(201)}, "ignoredContacts"},
		{"a won stage that is no stage", Settings{WonStages: []string{"won", "paid"}}, "wonStages"},
		{"a blank won stage", Settings{WonStages: []string{" "}}, "wonStages"},
		{"retention for 29 days", Settings{RetentionDays: new(29)}, "retentionDays"},
		{"negative retention", Settings{RetentionDays: new(-1)}, "retentionDays"},
		{"retention for 3651 days", Settings{RetentionDays: new(3651)}, "retentionDays"},
		{"a kept stage that is no stage", Settings{KeepStages: []string{"paid"}}, "keepStages"},
		{"a kept stage twice", Settings{KeepStages: []string{"lost", "Lost"}}, "keepStages"},
		{"a won stage twice", Settings{WonStages: []string{"lost", "Lost"}}, "wonStages"},
	} {
		got, err := State{}.Configure(c.in, knownRegion)
		require.Nil(t, got, c.name)
		require.Equal(t, []string{c.field}, fields(t, err), c.name)
	}
}

func manyEmails(count int) (emails []string) {
	for i := range count {
		emails = append(emails, fmt.Sprintf("p%d@example.com", i))
	}
	return emails
}

func TestConfigure_IgnoredContactsAreCanonical(t *testing.T) {
	t.Parallel()
	got, err := State{}.Configure(Settings{
		Region: "IN", IgnoredContacts: append(manyEmails(198), " Test@Test.com", "99999 99999", "test@test.com"),
	}, knownRegion)
	require.NoError(t, err)
	require.Equal(t, append(manyEmails(198), "test@test.com", "+919999999999"), got.IgnoredContacts)
	_, err = State{}.Configure(Settings{IgnoredContacts: []string{"test@test.com", "call me"}}, knownRegion)
	require.ErrorContains(t, err, "ignoredContacts entry 2 must be a phone, an email, *@domain or local@*")
}

func TestConfigure_CollectsErrors(t *testing.T) {
	t.Parallel()
	_, err := State{}.Configure(Settings{
		Name: strings.Repeat("n", 201), Features: []string{""}, Stages: []string{""}, Region: "??",
		RateLimit: new(-1.0), RateBurst: new(-1), VisitorDays: new(0),
	}, knownRegion)
	require.Equal(t, []string{"name", "features", "stages", "region", "rateLimit", "rateBurst", "visitorDays"},
		fields(t, err))
	_, err = State{}.Configure(Settings{VisitorDays: new(3651)}, knownRegion)
	require.Equal(t, []string{"visitorDays"}, fields(t, err))
}

func TestConfigure_Idempotent(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	first := func() Settings {
		return Settings{
			Name: "Acme", Features: []string{FeatureAPI}, Stages: []string{"a", "b"}, Region: "DE", RateLimit: new(5.0),
			RateBurst: new(9),
		}
	}
	s := configure(t, State{}, first(), at)
	require.Equal(t, State{
		Provisioned: true, Name: "Acme", Features: []string{FeatureAPI}, Stages: []string{"a", "b"}, Region: "DE",
		Currency: "EUR", RateLimit: new(5.0), RateBurst: new(9), TokensSeeLeads: true, VisitorDays: 395,
		QuarantineDays: 30, WonStages: []string{"won"}, KeepStages: []string{"won"}, CreatedAt: at, UpdatedAt: at,
		StoragePerDay: event.DefaultStoragePerDay, SharedAfter: event.DefaultSharedAfter,
	}, s)
	require.True(t, s.Has(FeatureAPI))

	again, err := s.Configure(first(), knownRegion)
	require.NoError(t, err)
	require.Nil(t, again)

	later := at.Add(time.Hour)
	s = configure(t, s, Settings{Name: "Acme", TokensSeeLeads: new(false), VisitorDays: new(30)}, later)
	require.Equal(t, 30, s.VisitorDays)
	require.False(t, s.TokensSeeLeads)
	replaced := configure(t, s, Settings{}, later)
	require.Equal(t, State{
		Provisioned: true, Features: []string{}, Stages: defaultStages, Region: "IN", Currency: "INR",
		TokensSeeLeads: true, VisitorDays: 395, QuarantineDays: 30, WonStages: []string{"won"},
		KeepStages: []string{"won"}, CreatedAt: at, UpdatedAt: later, SharedAfter: event.DefaultSharedAfter,
		StoragePerDay: event.DefaultStoragePerDay,
	}, replaced, "omitted settings return to their defaults")
	require.False(t, replaced.Has(FeatureAPI))
}

func TestConfigure_KeepsOmitted(t *testing.T) {
	t.Parallel()
	existing := State{
		Provisioned: true, Name: "Acme", Features: []string{FeatureAPI}, Stages: []string{"one", "two"}, Region: "US",
		Currency: "EUR", RateLimit: new(2.0), RateBurst: new(3), TokensSeeLeads: true, VisitorDays: 30,
		Quarantine: true, QuarantineDays: 90, WonStages: []string{"two"}, KeepStages: []string{"two"}, StoragePerDay: 5,
		IgnoredContacts: contact.Ignored{"*@example.org"}, SharedAfter: 3, UnmaskedInConsole: true,
	}
	kept, err := existing.Configure(existing.Patched(Settings{}), knownRegion)
	require.NoError(t, err)
	require.Nil(t, kept, "no settings were given")
	changed, err := existing.Configure(
		existing.Patched(Settings{Region: "DE", RateLimit: new(0.0), Stages: []string{}}), knownRegion,
	)
	require.NoError(t, err)
	require.Equal(t, &event.AccountConfigured{
		Name: "Acme", Features: []string{FeatureAPI}, Stages: defaultStages, Region: "DE", Currency: "EUR",
		RateLimit: new(0.0), RateBurst: new(3), VisitorDays: 30, Quarantine: true, QuarantineDays: 90,
		WonStages: []string{"two"}, StoragePerDay: new(5), IgnoredContacts: []string{"*@example.org"},
		SharedAfter: new(3), MaskInConsole: new(false),
	}, changed)
	renamed, err := existing.Configure(existing.Patched(Settings{Name: "Globex", RateBurst: new(4)}), knownRegion)
	require.NoError(t, err)
	require.Equal(t, &event.AccountConfigured{
		Name: "Globex", Features: []string{FeatureAPI}, Stages: existing.Stages, Region: "US", Currency: "EUR",
		RateLimit: new(2.0), RateBurst: new(4), VisitorDays: 30, Quarantine: true, QuarantineDays: 90,
		WonStages: []string{"two"}, StoragePerDay: new(5), IgnoredContacts: []string{"*@example.org"},
		SharedAfter: new(3), MaskInConsole: new(false),
	}, renamed)
	existing.TokensSeeLeads = false
	withoutLeads, err := existing.Configure(existing.Patched(Settings{Name: "Globex"}), knownRegion)
	require.NoError(t, err)
	require.False(t, withoutLeads.TokensSeeLeadsOrDefault())
	none, err := existing.Configure(existing.Patched(Settings{Features: []string{}}), knownRegion)
	require.NoError(t, err)
	require.Empty(t, none.Features)
	require.Equal(t, existing.Stages, none.Stages)
	fresh, err := State{}.Configure(State{}.Patched(Settings{Features: []string{FeatureAPI}}), knownRegion)
	require.NoError(t, err)
	require.Equal(t, &event.AccountConfigured{
		Features: []string{FeatureAPI}, Stages: defaultStages, Region: "IN", Currency: "INR",
	}, fresh)
}

func TestConfigure_EachSetting(t *testing.T) {
	t.Parallel()
	base := Settings{
		Name: "Acme", Features: []string{FeatureAPI}, Stages: []string{"a", "b"}, Region: "DE", RateLimit: new(5.0),
		RateBurst: new(9),
	}
	s := configure(t, State{}, base, time.Unix(0, 0))
	for name, change := range map[string]func(*Settings){
		"name":                          func(w *Settings) { w.Name = "acme" },
		"a feature more":                func(w *Settings) { w.Features = []string{FeatureAPI, "x"} },
		"no feature":                    func(w *Settings) { w.Features = nil },
		"order of stages":               func(w *Settings) { w.Stages = []string{"b", "a"} },
		"spelling of stages":            func(w *Settings) { w.Stages = []string{"A", "b"} },
		"currency":                      func(w *Settings) { w.Currency = "USD" },
		"region":                        func(w *Settings) { w.Region = "" },
		"rate":                          func(w *Settings) { w.RateLimit = new(6.0) },
		"no rate":                       func(w *Settings) { w.RateLimit = nil },
		"burst":                         func(w *Settings) { w.RateBurst = new(10) },
		"tokens that cannot read leads": func(w *Settings) { w.TokensSeeLeads = new(false) },
		"days of visitors":              func(w *Settings) { w.VisitorDays = new(1) },
		"quarantine":                    func(w *Settings) { w.Quarantine = new(true) },
		"days of arrivals":              func(w *Settings) { w.QuarantineDays = new(31) },
		"storage":                       func(w *Settings) { w.StoragePerDay = new(0) },
		"retention":                     func(w *Settings) { w.RetentionDays = new(90) },
		"kept stages":                   func(w *Settings) { w.KeepStages = []string{} },
		"mask in the console":           func(w *Settings) { w.MaskInConsole = new(false) },
		"won stages":                    func(w *Settings) { w.WonStages = []string{"b"} },
		"no burst":                      func(w *Settings) { w.RateBurst = nil },
	} {
		want := base
		change(&want)
		got, err := s.Configure(want, knownRegion)
		require.NoError(t, err, name)
		require.NotNil(t, got, name)
	}
}

func TestStage_IgnoresCase(t *testing.T) {
	t.Parallel()
	stages := []string{"new", "In Talks", "ÉTÉ"}
	for name, want := range map[string]string{
		"new": "new", "NEW": "new", "in talks": "In Talks", "été": "ÉTÉ", "e\u0301te\u0301": "ÉTÉ",
	} {
		got, ok := Stage(stages, name)
		require.True(t, ok, name)
		require.Equal(t, want, got, name)
	}
	for _, name := range []string{"", "won", "new ", "in  talks", "ne"} {
		_, ok := Stage(stages, name)
		require.False(t, ok, "%q", name)
	}
}

func TestStage_Unambiguous(t *testing.T) {
	t.Parallel()
	letter := rapid.SampledFrom([]rune("kK\u212asSſσςΣßẞéÉeE\u0301"))
	rapid.Check(t, func(t *rapid.T) {
		stages := rapid.SliceOfN(rapid.StringOfN(letter, 1, 2, -1), 1, 4).Draw(t, "stages")
		configured, err := State{}.Configure(Settings{Stages: stages}, knownRegion)
		if err != nil {
			return
		}
		for _, stage := range configured.Stages {
			got, ok := Stage(configured.Stages, stage)
			require.True(t, ok)
			require.Equal(t, stage, got)
		}
	})
}

func TestValidID_Accounts(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "Acme_Corp-7", "-", "0", strings.Repeat("a", 64)} {
		require.True(t, ValidID(id), "%q", id)
	}
	for _, id := range []string{
		"", strings.Repeat("a", 65), "a b", "a/b", "a.b", "a\x00", "é", "a\n", "१", "a\xff",
	} {
		require.False(t, ValidID(id), "%q", id)
	}
}

func TestAccount_NotProvisioned(t *testing.T) {
	t.Parallel()
	require.False(t, State{}.Provisioned)
	require.False(t, State{}.Has(FeatureAPI))
	require.False(t, Evolve(State{}, event.Fact{Data: event.TokenDeleted{}}).Provisioned)
	require.Equal(t, "crm_api", FeatureAPI)
	require.Equal(t, defaultStages, DefaultStages())
}

func configure(t *testing.T, s State, want Settings, at time.Time) State {
	t.Helper()
	configured, err := s.Configure(want, knownRegion)
	require.NoError(t, err)
	require.NotNil(t, configured)
	return Evolve(s, event.Fact{Stream: event.AccountStream("acme"), At: at, Data: *configured})
}

// fields returns the field names of an error, which must be field.Errors.
func fields(t *testing.T, err error) []string {
	t.Helper()
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	list := make([]string, len(wrong))
	for i, one := range wrong {
		list[i] = one.Field
	}
	return list
}

func TestReportStorageLow_OnceInDay(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)
	s := configure(t, State{}, Settings{StoragePerDay: new(5)}, at)
	low := s.ReportStorageLow(at)
	require.Equal(t, &event.StorageLow{StoragePerDay: 5}, low)
	s = Evolve(s, event.Fact{At: at, Data: *low})
	require.Equal(t, at, s.LatestAt())
	require.Nil(t, s.ReportStorageLow(at.Add(59*time.Minute)))
	require.NotNil(t, s.ReportStorageLow(at.Add(time.Hour)), "on the next day, by UTC")
	require.True(t, s.StorageLow(at.Add(23*time.Hour)))
	require.False(t, s.StorageLow(at.Add(24*time.Hour)))

	s = configure(t, s, Settings{Name: "Acme", StoragePerDay: new(5)}, at)
	require.True(t, s.StorageLow(at), "another setting was changed")
	s = configure(t, s, Settings{StoragePerDay: new(6)}, at)
	require.False(t, s.StorageLow(at))
	require.NotNil(t, s.ReportStorageLow(at))
	require.Nil(t, configure(t, s, Settings{StoragePerDay: new(0)}, at).ReportStorageLow(at), "there is no limit")
}
