package spendfile

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/unicode"

	"github.com/leadlog/leadlog/eventstore/event"
)

const maxTest = 1 << 20

func read(t *testing.T, text string, o Options) File {
	t.Helper()
	if o.Currency == "" {
		o.Currency = "INR"
	}
	o.MaxBytes = maxTest
	f, err := Read(strings.NewReader(text), o)
	require.NoError(t, err)
	return f
}

// lines are the rows of a file as texts: day, members of the key, amount.
func lines(f File) (texts []string) {
	for _, row := range f.Rows {
		key := []string{row.Source, row.UTMSource, row.UTMMedium, row.UTMCampaign}
		texts = append(texts, fmt.Sprintf("%s %s %s", row.Day, strings.Trim(strings.Join(key, "/"), "/"), row.Amount))
	}
	return texts
}

// The exports are in the shape that the platforms write: names of columns, titles, totals and formats of values.
const (
	// Ads Manager: the days that the report is about beside the day of the row, ad sets that are added up, a summary.
	metaDays = "\ufeff" + `Reporting starts,Reporting ends,Campaign name,Ad set name,Day,Amount spent (INR),Impressions,Ends
2026-09-20,2026-09-21,Diwali,Pune,2026-09-20,1010.5,3100,Ongoing
2026-09-20,2026-09-21,Diwali,Delhi,2026-09-20,0.25,100,Ongoing
2026-09-20,2026-09-21,"Sale, big",All,2026-09-21,,0,2026-10-01
2026-09-20,2026-09-21,,,,1010.75,3200,
`
	// Google Ads: two lines above the header, thousands with commas, dashes, totals below.
	googleDays = `Campaign report
"September 1, 2026 - September 2, 2026"
Day,Campaign,Campaign status,Currency code,Avg. cost,Cost,Impr.,Cost / conv.
2026-09-01,Brand,Enabled,INR,31.5,"1,234.50","3,100",9
2026-09-02,Brand,Enabled,INR, --, --,0,--
2026-09-02,Total Recall,Paused,INR,2,2.00,1,--
Total: Campaigns, --, --,INR,12,"1,236.50","3,101",9
Total: Account, --, --,INR,12,"1,236.50","3,101",9
`
)

func TestRead_MetaAdsManager(t *testing.T) {
	t.Parallel()
	f := read(t, metaDays, Options{})
	require.Equal(t, []string{
		"2026-09-20 facebook_ad///Diwali 1010.75", "2026-09-21 facebook_ad///Sale, big 0",
	}, lines(f))
	require.Equal(t, Meta, f.Platform)
	require.Equal(t, 3, f.Lines)
	require.Equal(t, []int{5}, f.LeftOut)
	require.True(t, f.HasCurrency)
	require.Equal(t, "1010.7500", f.Total)
	require.Equal(t, []string{"2026-09-20", "2026-09-21"}, []string{f.Since, f.Until})

	oneDay := read(t, `"Campaign name","Amount spent (INR)","Reporting starts","Reporting ends"
"","30","2026-09-20","2026-09-20"
"'90s sale","10","2026-09-20","2026-09-20"
"b","20","2026-09-20","2026-09-20"`, Options{})
	require.Equal(t, []string{"2026-09-20 facebook_ad///'90s sale 10", "2026-09-20 facebook_ad///b 20"}, lines(oneDay),
		"a total before the rows")

	german := read(t, "Kampagnenname;Tag;Ausgegebener Betrag (EUR)\nHerbst;01.09.2026;1.234\nHerbst;13.09.2026;0,5\n",
		Options{Currency: "EUR"})
	require.Equal(t, []string{"2026-09-01 facebook_ad///Herbst 1234", "2026-09-13 facebook_ad///Herbst 0.5"},
		lines(german))
}

func TestRead_GoogleAds(t *testing.T) {
	t.Parallel()
	want := []string{
		"2026-09-01 google_ad///Brand 1234.5", "2026-09-02 google_ad///Brand 0", "2026-09-02 google_ad///Total Recall 2",
	}
	f := read(t, googleDays, Options{})
	require.Equal(t, want, lines(f))
	require.Equal(t, Google, f.Platform)
	require.Equal(t, 3, f.HeaderLine)
	require.Equal(t, []int{7, 8}, f.LeftOut)
	require.Equal(t, "1236.5000", f.Total)

	// The download for Excel is UTF-16 with tabs.
	sheet := strings.NewReplacer(`"1,234.50"`, "1,234.50", `"1,236.50"`, "1,236.50", `"3,100"`, "3,100",
		`"3,101"`, "3,101", `"September 1, 2026 - September 2, 2026"`, "September 1, 2026 - September 2, 2026")
	var tabbed []string
	for i, line := range strings.Split(strings.TrimSpace(googleDays), "\n") {
		if i > 1 {
			line = strings.NewReplacer("1,234.50", "1;234.50", "1,236.50", "1;236.50", "3,100", "3;100", "3,101", "3;101").
				Replace(sheet.Replace(line))
			line = strings.ReplaceAll(strings.ReplaceAll(line, ",", "\t"), ";", ",")
		}
		tabbed = append(tabbed, line)
	}
	utf16, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().
		String(strings.Join(tabbed, "\r\n"))
	require.NoError(t, err)
	f = read(t, utf16, Options{})
	require.Equal(t, want, lines(f))
	require.Equal(t, "UTF-16LE", f.Encoding)

	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err = zip.Write([]byte(googleDays))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	require.Equal(t, want, lines(read(t, packed.String(), Options{})))

	account := read(t, "Tag,Währungscode,Kosten\n2026-09-01,EUR,\"1.234,50\"\nGesamt: Konto,EUR,\"1.234,50\"\n",
		Options{Currency: "EUR"})
	require.Equal(t, []string{"2026-09-01 google_ad 1234.5"}, lines(account), "without campaigns")
}

func TestRead_OtherPlatforms(t *testing.T) {
	t.Parallel()
	linkedIn := read(t, `Campaign Performance Report (in UTC)
Report Start: 9/1/2026

Start Date (in UTC),Account Name,Campaign Name,Currency,Total Spent,Impressions
9/1/2026,Acme,"Leads, directors",INR,"1,234.50",10000
9/2/2026,Acme,Brand,INR,10.25,500
Total,,,,"1,244.75",10500
`, Options{Set: map[string]string{utmSource: "linkedin"}})
	require.Equal(t, []string{"2026-09-01 linkedin//Leads, directors 1234.5", "2026-09-02 linkedin//Brand 10.25"},
		lines(linkedIn))
	microsoft := read(t, `Report Name: Campaign performance
Report Time: 9/1/2026 - 9/14/2026

"Gregorian date","Campaign name","Currency code","Spend"
"9/1/2026","Brand","INR","12.30"
"9/14/2026","Brand","INR","1,000.00"

"©2026 Microsoft Corporation. All rights reserved. "
`, Options{})
	require.Equal(t, []string{"2026-09-01 Brand 12.3", "2026-09-14 Brand 1000"}, lines(microsoft))
	require.Empty(t, microsoft.Platform)
}

func TestRead_OwnTable(t *testing.T) {
	t.Parallel()
	exported := read(t, `day,source,utmSource,utmMedium,utmCampaign,amount,setAt,position
2026-11-28,google_ad,,,'=diwali,1250.5,2026-11-29T01:14:20.826Z,13702
2026-11-28,,news,mail,,3,2026-11-29T01:14:20.826Z,13703
`, Options{})
	require.Equal(t, []string{"2026-11-28 google_ad///=diwali 1250.5", "2026-11-28 news/mail 3"}, lines(exported),
		"the export of GET /api/v1/crm/spend")
	require.False(t, exported.HasCurrency)

	mapped := read(t, "When|Campaign|Campaign ID|Net|Gross\n2026-11-28|Diwali|17|$1,5|3\n", Options{
		Currency: "USD", Map: map[string]string{"when": day, "Campaign ID": utmCampaign, "Net": amount},
		Set: map[string]string{source: "website"},
	})
	require.Equal(t, []string{"2026-11-28 website///17 1.5"}, lines(mapped))
	require.Equal(t, []Column{
		{"When", day}, {"Campaign", ""}, {"Campaign ID", utmCampaign}, {"Net", amount}, {"Gross", ""},
	}, mapped.Columns)
	require.Equal(t, []string{"2026-02-01 a 1"},
		lines(read(t, "day,utm_campaign,spend\n02/01/2026,a,1\n", Options{Dates: MonthFirst})))
}

func TestRead_Rejects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                     "the file is empty",
		"PK\x03\x04\x14\x00":   "this is a spreadsheet (XLSX)",
		"\x1f\x8bnot gzip":     "the file cannot be unpacked",
		"name,phone\nAsha,1\n": `no column is a day; the file has ["name" "phone"]`,
		"Campaign report\n\"September 1, 2026\"\nWeek,Campaign,Currency code,Cost\n2026-08-31,a,INR,1\n": `column "Week" is not a day: export the report by day`,
		"day,campaign\n2026-09-01,a\n":                                        "no column is an amount",
		"day,amount\n2026-09-01,1\n":                                          "no column is a source or a campaign",
		"day,date,spend,campaign\n1,1,1,1":                                    `columns "day" and "date" both look like the day`,
		"day,campaign,amount\n":                                               "the file has no row with an amount",
		"day,campaign,amount\n2026-09-01,a":                                   "line 2: amount is not a number such as 1250.50",
		"day,campaign,amount\n03/04/2026,a,1\n04/03/2026,a,1\n":               `the dates of column "day" may begin with the day or the month`,
		"day,campaign,amount\n13/04/2026,a,1\n04/14/2026,a,1\n":               "line 3: day must be a day, such as 2026-01-31",
		"day,campaign,amount\n1969-12-31,a,1\n":                               "line 2: day must be a day such as 2026-01-31",
		"day,campaign,amount\n2026-09-01,a,-1\n":                              "line 2: amount must not be negative",
		"day,campaign,amount\n2026-09-01,a,1.234\n":                           "line 2: amount can be read in two ways",
		"day,campaign,amount\n2026-09-01,a,\"1,234\"\n2026-09-02,a,\"0,5\"\n": "line 2: amount can be read in two ways",
		"day,campaign,amount\n2026-09-01,a,$5\n":                              "line 2: amount is in $, and the account's currency is INR",
		"day,campaign,amount\n2026-09-01,a,EUR 5\n":                           "line 2: amount is in EUR",
		"day,campaign,amount\n2026-09-01,a,eur5\n":                            "line 2: amount is in eur",
		"day,source,amount\n2026-09-01,Google,5\n":                            "line 2: source must be one of api,",
		"day,campaign,amount\n2026-09-01,,5\n":                                "line 2: key must have one to four of",
		"day,campaign,amount\n2026-09-01,a,5,6\n":                             "line 2: has 4 cells under 3 columns",
		"day,campaign,amount,currency\n2026-09-01,a,5,usd\n":                  "line 2: currency is usd, and the account's currency is INR",
		"Day,Campaign name,Amount spent (USD)\n2026-09-01,a,5\n":              `column "Amount spent (USD)" is in USD, and the account's currency is INR`,
		"Campaign name,Amount spent (INR),Reporting starts,Reporting ends\na,5,2026-09-01,2026-09-30\n": "line 2: Reporting starts to Reporting ends is 2026-09-01 to 2026-09-30, and must be one day: " +
			"export the report with a breakdown by day",
		"day,campaign,amount\n2026-09-01,a,99999999999.9999\n2026-09-01,a,99999999999\n2026-09-01,a,999999999999999\n": "must have at most 15 digits",
	} {
		_, err := Read(strings.NewReader(text), Options{Currency: "INR", MaxBytes: maxTest})
		require.ErrorContains(t, err, want, "%.100q", text)
	}
	_, err := Read(strings.NewReader("day,campaign,amount\n"+strings.Repeat("2026-09-01,a,x\n", 50)),
		Options{Currency: "INR", MaxBytes: maxTest})
	var wrong *Errors
	require.ErrorAs(t, err, &wrong)
	require.Len(t, wrong.First, maxErrors)
	require.ErrorContains(t, err, "line 21: amount is not a number such as 1250.50\nand 30 more")
	_, err = Read(strings.NewReader(googleDays), Options{Currency: "INR", MaxBytes: 100})
	require.ErrorIs(t, err, ErrTooLarge)

	for _, o := range []Options{
		{Map: map[string]string{"Day": "when"}}, {Map: map[string]string{"Dayy": day}},
		{Set: map[string]string{amount: "1"}}, {Dates: "month"},
	} {
		o.Currency, o.MaxBytes = "INR", maxTest
		_, err := Read(strings.NewReader(googleDays), o)
		var option *OptionError
		require.ErrorAs(t, err, &option, "%v", o)
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{metaDays, googleDays, "day;campaign;amount\n1.9.2026;a;\"1.234,5\"\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := Read(bytes.NewReader(content), Options{Currency: "INR", MaxBytes: maxTest})
		if err != nil {
			return
		}
		require.NotEmpty(t, file.Rows)
		seen := map[event.SpendRow]bool{}
		for _, row := range file.Rows {
			require.NotEqual(t, event.SpendKey{}, row.SpendKey)
			require.NotEmpty(t, row.Amount)
			row.Amount = ""
			require.False(t, seen[row], "%v is twice", row)
			seen[row] = true
		}
	})
}
