package systemtest

import (
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// writeFile writes a file into a temporary directory of the test.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// readOutcomes reads the outcome of each row: line, status, error.
func readOutcomes(t *testing.T, path string) (reported []string) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"line", "lines", "status", "leadId", "warnings", "errors"}, rows[0])
	for _, row := range rows[1:] {
		reported = append(reported, strings.Join(strings.Fields(row[0]+" "+row[2]+" "+row[4]+" "+row[5]), " "))
		require.Equal(t, row[2] == "400", row[3] == "", "only an invalid row has no lead: %v", row)
	}
	return reported
}

func TestImport_CSV(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	const text = "\ufeffFull Name;Mobile Phone;E-mail;Deal Value;Lead Source;City;Internal\r\n" +
		"Asha Rao;98765 43210;asha@example.com;1,20,000;website;Pune;x\r\n" + // 2
		"Ravi;98765 43211;;;;\"Navi\r\nMumbai\";y\r\n" + // 3
		"Bad;12;nope;;;;\r\n" + // 5
		";;;;;;\r\n" +
		"Asha Rao;98765 43210;asha@example.com;1,20,000;website;Pune;x\r\n" + // 7, equal to 2
		"Too;9876543213;;;;;;;many\r\n" // 8
	path := writeFile(t, "leads.csv", text)
	bad := []string{
		"line 5: phone is not a valid phone number; email is not a valid email address",
		"line 8: row has 9 cells under 7 columns",
	}

	dry := launch(t, settings, "import", path, "--account", "acme", "--dry-run").exits(t, 1)
	require.Equal(t,
		bad[0]+"\nline 7: DUPLICATE_LEAD_SOURCE: the lead of line 2 already has an arrival from "+
			"this source\n"+bad[1]+"\n", dry.out.String())
	require.Contains(t, dry.err.String(),
		"5 rows: 2 new leads, 0 merged, 1 refused as duplicates, 2 bad; 0 of them done before; nothing "+
			"was written")
	require.NoFileExists(t, path+".outcome.csv")

	first := launch(t, settings, "import", path, "--account", "acme", "--map", "Internal=").exits(t, 1)
	require.Contains(t, first.err.String(),
		"2 new leads, 0 merged, 1 refused as duplicates, 2 bad; 0 of them done before")
	want := []string{
		"2 201", "3 201", "5 400 phone is not a valid phone number; email is not a valid email address",
		"7 409 DUPLICATE_LEAD_SOURCE", "8 400 row has 9 cells under 7 columns",
	}
	require.Equal(t, want, readOutcomes(t, path+".outcome.csv"))
	pool := pgtest.Pool(t, settings["LEADLOG_DATABASE_URL"])
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:8])
	for _, written := range []string{digest, hex.EncodeToString([]byte(digest))} { // pg_dump writes bytes so
		require.NotContains(t, dump(t, settings["LEADLOG_DATABASE_URL"]), written,
			"after an erasure, the rows could be found by trying")
	}
	require.Positive(t, pgtest.Value[int](t, pool, `SELECT reltuples FROM pg_class WHERE oid = 'log.event'::regclass`),
		"PostgreSQL knows of the rows")

	_, base := serve(t, settings)
	find := func(phone string) map[string]any {
		t.Helper()
		var found []any
		require.Eventually(t, func() bool {
			found, _ = mustCall(t, "GET", base+"/api/v1/crm/leads?phone="+phone, jwt, "").body["data"].([]any)
			return len(found) == 1
		}, soon, 20*time.Millisecond)
		return found[0].(map[string]any)
	}
	asha := find("9876543210")
	require.Equal(t, "csv_import", asha["source"])
	require.InDelta(t, 120000, asha["opportunityValue"], 0)
	require.Equal(t, map[string]any{"City": "Pune"}, asha["customFields"])
	require.Equal(t, map[string]any{"City": "Navi\nMumbai"}, find("9876543211")["customFields"])
	events := mustCall(t, "GET", base+"/api/v1/crm/leads/"+asha["leadId"].(string)+"/events",
		jwt, "").body["data"].([]any)
	require.Equal(t, "system:import", events[0].(map[string]any)["actor"])

	// The invalid row is corrected, a row is added before the others, and the file is imported again.
	corrected := strings.Replace(text, "Bad;12;nope", "Good;9876543212;good@example.com", 1)
	corrected = strings.Replace(corrected, "Internal\r\n", "Internal\r\nNew;9876543219;;;;;\r\n", 1)
	require.NoError(t, os.WriteFile(path, []byte(corrected), 0o600))
	again := launch(t, settings, "import", path, "--account", "acme", "--map", "Internal=", "--outcome",
		path+".again").exits(t, 1)
	require.Contains(t, again.err.String(),
		"4 new leads, 0 merged, 1 refused as duplicates, 1 bad; 3 of them done before")
	require.Equal(t, []string{
		"2 201", "3 201", "4 201", "6 201", "8 409 DUPLICATE_LEAD_SOURCE", "9 400 row has 9 cells under 7 columns",
	},
		readOutcomes(t, path+".again"))
}

func TestImport_JSONLines(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	path := writeFile(t, "leads", "\ufeff"+`{"phone":"9876543210","metadata":{"source":"website"}}`+"\n\n"+
		`{"phone":"9876543210","metadata":{"source":"website"}}`+"\nnope\n"+`{"phone":"9876543211",`+
		`"note":"a\u0000"}`+"\n"+
		`{"phone":"9876543212","status":"nowhere","full_name":"Asha","leadTemperature":7,"fields":"x"}`)
	dry := launch(t, settings, "import", path, "--account", "acme", "--dry-run").exits(t, 1)
	require.Equal(t,
		"line 4: body must be a JSON object\nline 5: note must not contain NUL\n",
		dry.out.String())
	for range 2 {
		launch(t, settings, "import", path, "--account", "acme").exits(t, 1)
		require.Equal(t, []string{
			"1 201", "3 200", "4 400 body must be a JSON object", "5 400 note must not contain NUL",
			"6 201 STATUS_UNKNOWN TEMPERATURE_UNKNOWN",
		}, readOutcomes(t, path+".outcome.csv"))
	}
	valid := writeFile(t, "leads.jsonl", `{"phone":"9876543219"}`)
	launch(t, settings, "import", valid, "--account", "acme").exits(t, 0)
}

// Rows conflict with each other and with existing leads.
func TestImport_DryRunMatchesImport(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	before := writeFile(t, "before.csv",
		"phone,email\n9876543200,there@example.com\n9876543201,\n9876543202,other@example.com\n")
	launch(t, settings, "import", before, "--account", "acme").exits(t, 0)
	path := writeFile(t, "leads.csv", "phone,email\n"+
		"9876543210,asha@example.com\n"+ // 2: new
		"9876543211,asha@example.com\n"+ // 3: the email of 2 with another phone
		"9876543212,ravi@example.com\n"+ // 4: new
		"9876543212,asha@example.com\n"+ // 5: the phone of 4 and the email of 2
		"9876543200,\n"+ // 6: exists already
		"9876543201,other@example.com\n"+ // 7: two existing leads
		"9876543202,other@example.com\n"+ // 8: done by the earlier import
		",meera@example.com\n") // 9: new
	count := func() any { return queryInt(t, settings, `SELECT count(*) FROM log.event`) }
	events := count()
	for range 2 {
		dry := launch(t, settings, "import", path, "--account", "acme", "--dry-run").exits(t, 1)
		var reported []string
		for line := range strings.Lines(dry.out.String()) {
			reported = append(reported,
				regexp.MustCompile(`[0-9A-HJKMNP-TV-Z]{26}`).ReplaceAllString(strings.TrimSpace(line), "ID"))
		}
		require.Equal(t, []string{
			"line 3: DUPLICATE_LEAD_EMAIL: the email already belongs to the lead of line 2",
			"line 5: DUPLICATE_LEAD_EMAIL: the email already belongs to the lead of line 2",
			"line 6: DUPLICATE_LEAD_SOURCE: lead ID already has an arrival from this source",
			"line 7: DUPLICATE_LEAD_EMAIL: the email already belongs to lead ID",
		}, reported)
		require.Contains(t, dry.err.String(),
			"8 rows: 4 new leads, 0 merged, 4 refused as duplicates, 0 bad; 1 of them done before; "+
				"nothing was written")
		require.Equal(t, events, count())
	}
	require.NoFileExists(t, path+".outcome.csv")
	p := launch(t, settings, "import", path, "--account", "acme").exits(t, 1)
	require.Contains(t, p.err.String(),
		"8 rows: 4 new leads, 0 merged, 4 refused as duplicates, 0 bad; 1 of them done before; ")
	require.Equal(t, []string{
		"2 201", "3 409 DUPLICATE_LEAD_EMAIL", "4 201", "5 409 DUPLICATE_LEAD_EMAIL", "6 409 DUPLICATE_LEAD_SOURCE",
		"7 409 DUPLICATE_LEAD_EMAIL", "8 201", "9 201",
	}, readOutcomes(t, path+".outcome.csv"))
}

func TestImport_Windows1252(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	p := launch(t, settings, "import", writeFile(t, "leads.txt", "Name\tPhone\nJos\xe9 \x80\t9876543210\n"),
		"--account", "acme").exits(t, 0)
	require.Contains(t, p.err.String(), `CSV in Windows-1252, delimiter '\t'`)
	_, base := serve(t, settings)
	require.Eventually(t, func() bool {
		found, _ := mustCall(t, "GET", base+"/api/v1/crm/leads", jwt, "").body["data"].([]any)
		return len(found) == 1 && found[0].(map[string]any)["name"] == "José €"
	}, soon, 20*time.Millisecond)
}

// Files as people export them: what cannot be used costs no person, and contacts do not become custom fields silently.
func TestImport_RealFiles(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	for _, c := range []struct {
		name, text string
		code       int
		outcomes   []string
		printed    string
	}{
		{
			"quote.csv",
			"Name,Note,Phone\nBinu,\"cut note,9876585002\nChitra,x,9876585003\nDev,x,9876585004\nEsha,TV " +
				"42\",9876585005\n", 1,
			[]string{
				"2 400 row begins a quoted cell from line 2 to 5, with lines in it that are rows: is a quote " +
					"missing, or one too many?",
				"3 201", "4 201", "5 201",
			}, "4 rows: 3 new leads, 0 merged, 0 refused as duplicates, 1 bad",
		},
		{
			"meta.csv",
			"id,created_time,ad_id,campaign_name,form_id,platform,full_name,phone_number,work_email,lead_status\n" +
				"l:91,2026-09-12T15:05:13+05:30,ag:1202,Monsoon,f:9,ig,Asha " +
				"Rao,p:+919876500001,asha@example.com,complete\n", 0,
			[]string{"2 201"}, "1 new leads",
		},
		{
			"placeholders.csv",
			"Name,Phone,Email,Amount,Lead " +
				"Status\nA,N/A,a@example.com,,-None-\nB,9876500011,-,TBD,Open\nC,0000000000,c@example.com,1.5 " +
				"Cr,\nD,-,none,,\n", 1,
			[]string{
				"2 201", "3 201 STATUS_UNKNOWN", "4 201 PLACEHOLDER_CONTACT VALUE_UNREADABLE",
				"5 400 phone or email is required",
			}, "2 with warnings",
		},
		{"byte.csv", "Name,Phone,City\nJosé,9876500021,पुणे\nRen\xe9,9876500022,Paris\n", 1,
			[]string{"2 201", `3 400 row has bytes in column "Name" that are not UTF-8`}, "CSV in UTF-8"},
		{
			"german.csv", "Vorname;Nachname;Telefon;E-Mail\nJutta;Beispiel;+49 30 1234567;jutta@example.de\n", 0,
			[]string{"2 201"}, "Telefon",
		},
		{"region.csv", "Name;Telefon;E-Mail\nUdo;030 1234567;udo@example.de\n", 0,
			[]string{"2 201 VALUE_UNREADABLE CONTACT_IN_CUSTOM_FIELD"},
			`note: only 0 of 1 cells of "Telefon" are phones; a number without + is read by a column of countries, ` +
				`else in the account's region, IN`},
		{"headless.csv", "Asha,9876500051\nRavi,9876500052\n", 2, nil, "the first row must name the columns"},
		{"title.csv", "Leads of May\n\nName,Kontakt\nAsha,9876500031\n", 2, nil, "no column is a phone or an email"},
		{"skip.csv", "Leads of May\n\nName,Phone\nAsha,9876500031\n", 2, nil, "leave out those before it by --skip 2"},
		{
			"unknown.csv", "Name,Phone,Mitarbeiter\nAsha,9876500041,x@example.com\n", 2, nil,
			`column "Mitarbeiter" has emails in 1 of 1 cells`,
		},
	} {
		path := writeFile(t, c.name, c.text)
		p := launch(t, settings, "import", path, "--account", "acme").exits(t, c.code)
		require.Contains(t, p.err.String(), c.printed, c.name)
		if c.code == 2 {
			require.NoFileExists(t, path+".outcome.csv", "nothing was imported")
			continue
		}
		require.Equal(t, c.outcomes, readOutcomes(t, path+".outcome.csv"), c.name)
	}
	path := writeFile(t, "skip.csv", "Leads of May\n\nName,Phone\nAsha,9876500031\n")
	p := launch(t, settings, "import", path, "--account", "acme", "--skip", "2").exits(t, 0)
	require.Contains(t, p.err.String(), "other lines: 3 up to the header, 0 blank")
	path = writeFile(t, "unknown.csv", "Name,Phone,Mitarbeiter\nAsha,9876500041,x@example.com\n")
	launch(t, settings, "import", path, "--account", "acme", "--keep", "Mitarbeiter", "--dry-run").exits(t, 0)
	launch(t, settings, "import", path, "--account", "acme", "--yes").exits(t, 0)
}

func TestImport_HistoryOfAds(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	intake := mustCall(t, "POST", base+"/api/v1/crm/intakes", jwt,
		`{"name":"Ads","kind":"google_lead_form","secret":"google-key-1234567"}`).is(t, 201)
	mustCall(t, "POST", base+intake.data()["url"].(string), "",
		`{"lead_id":"lead-1","google_key":"google-key-1234567","gcl_id":"Cj1","user_column_data":[`+
			`{"column_id":"EMAIL","string_value":"asha@example.com"}]}`).is(t, 200)
	path := writeFile(t, "ads.csv", "Lead ID,Full name,User email,Campaign,Google Click ID,Lead Submit Time\n"+
		"lead-1,Asha "+
		"Rao,asha@example.com,Monsoon,Cj1,2026-01-05T10:00:00Z\nlead-2,Ravi,ravi@example.com,Monsoon,Cj2,2026-01-06T10:00:00Z\n")
	for range 2 {
		p := launch(t, settings, "import", path, "--account", "acme").exits(t, 0)
		require.Contains(t, p.err.String(), "2 rows: 1 new leads, 1 merged")
		require.Equal(t, []string{"2 200", "3 201"}, readOutcomes(t, path+".outcome.csv"))
		changed := writeFile(t, "ads.csv",
			"Lead ID,Full name,User email,Campaign,Google Click ID,Lead Submit Time,Note\n"+
				"lead-1,Asha "+
				"Rao,asha@example.com,Monsoon,Cj1,2026-01-05T10:00:00Z,x\nlead-2,Ravi,ravi@example.com,Monsoon,Cj2,2026-01-06T10:00:00Z,x\n")
		p = launch(t, settings, "import", changed, "--account", "acme").exits(t, 0)
		require.Contains(t, p.err.String(), "2 of them done before",
			"the provider's id names the arrival, whatever else the row has")
	}
	find := func(email string) string {
		t.Helper()
		var found []any
		require.Eventually(t, func() bool {
			found, _ = mustCall(t, "GET", base+"/api/v1/crm/leads?email="+email, jwt, "").body["data"].([]any)
			return len(found) == 1
		}, soon, 20*time.Millisecond)
		return found[0].(map[string]any)["leadId"].(string)
	}
	sources := func(email string) map[string]any {
		t.Helper()
		list := mustCall(t, "GET", base+"/api/v1/crm/leads/"+find(email)+"/sources", jwt, "").body["data"].([]any)
		require.Len(t, list, 1)
		return list[0].(map[string]any)
	}
	require.Equal(t, "google_ad", sources("asha@example.com")["source"])
	require.InDelta(t, 1, sources("asha@example.com")["arrivals"], 0, "the file doubles nothing")
	require.Equal(t, "2026-01-06T10:00:00.000Z", sources("ravi@example.com")["firstSeenAt"])
	launch(t, settings, "verify").exits(t, 0)
}

func TestImport_MergesDuplicates(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	first := writeFile(t, "first.csv", "name,phone,email\nAsha,9876543210,\nRavi,,ravi@example.com\n")
	launch(t, settings, "import", first, "--account", "acme").exits(t, 0)
	second := writeFile(t, "second.csv",
		"name,phone,email\nAsha Rao,9876543210,asha@example.com\nRavi,9876543210,ravi@example.com\nMeera,9876543212,\n")
	launch(t, settings, "import", second, "--account", "acme").exits(t, 1)
	require.Equal(t, []string{"2 409 DUPLICATE_LEAD_SOURCE", "3 409 DUPLICATE_LEAD_EMAIL", "4 201"},
		readOutcomes(t, second+".outcome.csv"))
	for range 2 {
		launch(t, settings, "import", second, "--account", "acme", "--on-duplicate", "merge").exits(t, 0)
		require.Equal(t, []string{"2 200", "3 200", "4 201"}, readOutcomes(t, second+".outcome.csv"))
	}
	launch(t, settings, "verify").exits(t, 0)
}

func TestImport_Undo(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	run := func(p *program) string {
		t.Helper()
		found := regexp.MustCompile(`--undo (\w{26})`).FindStringSubmatch(p.err.String())
		require.NotNil(t, found, p.err)
		return found[1]
	}
	before := writeFile(t, "before.ndjson", `{"phone":"9876543210","metadata":{"source":"website"}}`+"\n")
	launch(t, settings, "import", before, "--account", "acme").exits(t, 0)
	path := writeFile(t, "leads.csv",
		"name,phone\nAsha,9876543210\nRavi,9876543211\nMeera,9876543212\nRavi again,9876543211\n")
	first := launch(t, settings, "import", path, "--account", "acme").exits(t, 1)
	require.Equal(t, []string{"2 200", "3 201", "4 201", "5 409 DUPLICATE_LEAD_SOURCE"},
		readOutcomes(t, path+".outcome.csv"))
	mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543212","metadata":{"source":"website"}}`).
		is(t, 200)

	launch(t, settings, "import", "--undo", run(first), "--account", "acme").exits(t, 2) // no terminal to ask on
	launch(t, settings, "import", "--undo", "01JQKXZ8V4W9H6M3T2R5N7P0AB", "--account", "acme", "--yes").exits(t, 2)
	count := func() int { return queryInt(t, settings, `SELECT count(*) FROM log.event`) }
	events := count()
	tried := launch(t, settings, "import", "--undo", run(first), "--account", "acme", "--dry-run", "--yes").exits(t, 0)
	require.Contains(t, tried.err.String(), "made 1 leads that nothing has changed since; 2 others stay\n"+
		"nothing was written\n")
	require.Equal(t, events, count())
	undone := launch(t, settings, "import", "--undo", run(first), "--account", "acme", "--yes").exits(t, 0)
	require.Equal(t, undone.out.String(), tried.out.String())
	require.Contains(t, undone.err.String(), "1 leads erased, 2 stay")
	require.Contains(t, undone.out.String(), "was there before the import")
	require.Contains(t, undone.out.String(), "was changed by user:")
	again := launch(t, settings, "import", path, "--account", "acme").exits(t, 1)
	require.Equal(t, []string{"2 200", "3 201", "4 201", "5 409 DUPLICATE_LEAD_SOURCE"},
		readOutcomes(t, path+".outcome.csv"))
	require.Contains(t, again.err.String(), "2 of them done before",
		"the lead that was taken back is made again")
	launch(t, settings, "verify").exits(t, 0)
}

func TestImport_OtherMappingAfterInterruption(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	var text strings.Builder
	text.WriteString("name,phone,other\n")
	for i := range 3_000 {
		fmt.Fprintf(&text, "Person %d,98%08d,x\n", i, i)
	}
	path := writeFile(t, "leads.csv", text.String())
	p := launch(t, settings, "import", path, "--account", "acme")
	require.Eventually(t, func() bool {
		reported, err := os.ReadFile(path + ".outcome.csv")
		return err == nil && strings.Count(string(reported), "\n") > 10
	}, soon, time.Millisecond, "%s", p.err)
	require.NoError(t, kill(p))
	p.wait(t)
	other := launch(t, settings, "import", path, "--account", "acme", "--map", "other=").exits(t, 2)
	require.Contains(t, other.err.String(), "was interrupted that read its columns in another way")
	kept, err := os.ReadFile(path + ".outcome.csv")
	require.NoError(t, err)
	require.Greater(t, strings.Count(string(kept), "\n"), 10, "the outcomes of the interrupted import stay")
	launch(t, settings, "import", path, "--account", "acme").exits(t, 0)
	launch(t, settings, "import", path, "--account", "acme", "--map", "other=").exits(t, 1)
}

func TestImport_ResumesAfterKill(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	const count = 3_000
	var text strings.Builder
	text.WriteString("name,phone,email\n")
	for i := range count {
		fmt.Fprintf(&text, "Person %d,98%08d,p%d@example.com\n", i, i, i)
	}
	path := writeFile(t, "leads.csv", text.String())
	outcome := path + ".outcome.csv"
	for _, share := range []int{0, count / 4, count / 2} {
		p := launch(t, settings, "import", path, "--account", "acme")
		require.Eventually(t, func() bool {
			reported, err := os.ReadFile(outcome)
			return err == nil && strings.Count(string(reported), "\n") > share
		}, soon, time.Millisecond, "%s", p.err)
		require.NoError(t, kill(p))
		p.wait(t)
	}
	last := launch(t, settings, "import", path, "--account", "acme").exits(t, 0)
	require.Contains(t, last.err.String(),
		fmt.Sprintf("%d rows: %d new leads, 0 merged, 0 refused as duplicates, 0 bad;", count, count))
	require.NotContains(t, last.err.String(), "; 0 of them done before")
	for i, reported := range readOutcomes(t, outcome) {
		require.Equal(t, fmt.Sprintf("%d 201", i+2), reported)
	}
	// the export waits for the view
	export := launch(t, settings, "export", "sources", "--account", "acme", "--format", "ndjson").exits(t, 0)
	types := map[string]int{
		"entries": strings.Count(export.out.String(), "\n"),
		"once":    strings.Count(export.out.String(), `"arrivals":1,`),
	}
	require.Equal(t, map[string]int{"entries": count, "once": count}, types)
	launch(t, settings, "verify").exits(t, 0)
}

// Names of columns are untrusted text.
func TestImport_EscapesControlCharacters(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	path := writeFile(t, "leads.csv",
		"name,phone,ev\x1b[2Jil,\u202ecod\nAsha,9876543210,"+strings.Repeat("x", 2001)+",y\n")
	for _, args := range [][]string{{"--dry-run"}, {"--dry-run", "--map", "Fax=phone"}} {
		dry := launch(t, settings, append([]string{"import", path, "--account", "acme"}, args...)...)
		dry.wait(t)
		printed := dry.out.String() + dry.err.String()
		require.NotContains(t, printed, "\x1b")
		require.NotContains(t, printed, "\u202e")
		require.Contains(t, printed, `ev\x1b[2Jil`)
		require.Contains(t, printed, `\u202ecod`)
	}
}

func TestImport_InvalidArguments(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	plain := launch(t, settings, "account", "set", "plain")
	require.Zero(t, plain.wait(t), plain.err)
	good := writeFile(t, "leads.csv", "name,phone\nAsha,9876543210\n")
	for name, c := range map[string]struct {
		code    int
		printed string
		args    []string
	}{
		"no such file": {1, "no such file", []string{"/nowhere.csv", "--account", "acme"}},
		"no file":      {1, "must be a file", []string{"/dev/null", "--account", "acme"}},
		"unknown account": {
			2, `--account="missing": must be an account that exists`, []string{good, "--account", "missing"},
		},
		"feature not enabled": {
			1, "account plain: feature crm_api is not enabled", []string{good, "--account", "plain"},
		},
		"a spreadsheet": {
			1, "save it as CSV", []string{writeFile(t, "leads.xlsx", "PK\x03\x04\x14\x00"), "--account", "acme"},
		},
		"an old spreadsheet": {
			1, "save it as CSV", []string{writeFile(t, "leads.csv", "\xd0\xcf\x11\xe0\xa1\xb1"), "--account", "acme"},
		},
		"an unknown format": {
			2, "Try: leadlog import --help", []string{good, "--account", "acme", "--format", "xml"},
		},
		"no account": {2, "--account", []string{good}},
		"an unknown column": {
			2, `there is no column "Fax"`, []string{good, "--account", "acme", "--map", "Fax=phone"},
		},
		"an unknown field": {
			2, `there is no field "tel"`, []string{good, "--account", "acme", "--map", "phone=tel"},
		},
		"a bad delimiter": {2, `--delimiter="ab"`, []string{good, "--account", "acme", "--delimiter", "ab"}},
		"a bad encoding": {
			2, `--encoding="klingon"`, []string{good, "--account", "acme", "--encoding", "klingon"},
		},
		"an array": {1, "JSON array", []string{writeFile(t, "leads.json", " [{}]"), "--account", "acme"}},
		"a map for JSON": {
			2, "apply only to CSV", []string{writeFile(t, "leads.json", "{}"), "--account", "acme", "--map", "a=b"},
		},
		"an empty table": {
			1, "must name the columns", []string{writeFile(t, "leads.csv", ""), "--account", "acme"},
		},
		"outcome not writable": {1, "--outcome", []string{good, "--account", "acme", "--outcome", "/nowhere/out.csv"}},
		"vCards": {
			1, "export the contacts as CSV", []string{writeFile(t, "leads.csv", "BEGIN:VCARD\n"), "--account", "acme"},
		},
		"a web page": {
			1, "this is a web page (HTML)", []string{writeFile(t, "leads.xls", "<HTML><table>"), "--account", "acme"},
		},
		"a PDF": {
			1, "this is a PDF", []string{writeFile(t, "leads.csv", "%PDF-1.4"), "--account", "acme"},
		},
		"JSON in UTF-16": {
			1, "JSON in UTF-16", []string{writeFile(t, "leads.json", "\xff\xfe{\x00"), "--account", "acme"},
		},
		"JSON of lines": {
			1, "JSON over several lines",
			[]string{writeFile(t, "leads.json", "{\n  \"phone\": 1}"), "--account", "acme"},
		},
	} {
		p := launch(t, settings, append([]string{"import"}, c.args...)...)
		require.Equal(t, c.code, p.wait(t), "%s: %s", name, p.err)
		require.Contains(t, p.err.String(), c.printed, name)
	}
	first := launch(t, settings, "import", good, "--account", "acme")
	require.Zero(t, first.wait(t), first.err)
	other := maps.Clone(settings)
	other["LEADLOG_CLAIM_KEY"] = "bm90IHRoZSBzYW1lIGtleSBhcyBpdCB3YXMgYmVmb3I="
	p := launch(t, other, "import", good, "--account", "acme")
	require.Equal(t, 1, p.wait(t))
	require.Contains(t, p.err.String(), "LEADLOG_CLAIM_KEY")
}
