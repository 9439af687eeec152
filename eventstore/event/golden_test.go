package event

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// writeMissing creates the golden file of a new type. It overwrites none. To add a member to a type, delete its file.
var writeMissing = flag.Bool("write-missing", false,
	"write golden files of types that have none, and the list of classes")

// samples returns one fact of each type, with a value in every field.
func samples() []Data {
	at := time.Date(2025, 3, 30, 1, 2, 3, 45e6, time.UTC)
	rate, burst := 2.5, 40
	fields := map[string]jsontext.Value{
		"größe":  jsontext.Value(`"XL"`),
		"budget": jsontext.Value(`12345678901234567890.10`),
		"tags":   jsontext.Value(`["a",null,{"b":true}]`),
	}
	meta := map[string]jsontext.Value{
		"source": jsontext.Value(`"Facebook Ads"`), "campaign": jsontext.Value(`{"id":7}`),
	}
	raw := ArrivalRaw{
		ContentType: "application/json", Body: `{"name":"Zoë"}`, Compressed: []byte{0x1f, 0x8b},
		Headers: map[string]string{"webhook-id": "d-1"}, Query: map[string]string{"utm_source": "newsletter"},
		Item: true, Post: `{"leads":[]}`,
	}
	hash := bytes.Repeat([]byte{0x00, 0x7f, 0xff, 0x3e}, 8)
	campaign := Campaign{UTMSource: "Google", UTMMedium: "cpc", UTMCampaign: "Größen & mehr", UTMID: "42"}
	intake := IntakeSettings{
		Name: "Größentabelle", Kind: "webhook", Source: "website", Enabled: true,
		Origins: []string{"https://example.com"}, Redirect: "https://example.com/danke?a=1&b=2", Honeypot: "url",
		Challenge: "turnstile", RateLimit: &rate, ExpectEvery: "24h0m0s",
		Mapping: map[string]string{"name": `body.first + " " + body.last`, "email": "body.mail"},
		Signature: &IntakeSignature{
			Header: "X-Signature", Algorithm: "sha256", Encoding: "hex", Prefix: "sha256=", Scheme: "hmac",
			Format: "t={timestamp},v1={signature}", TimestampHeader: "X-Timestamp", IDHeader: "X-Id",
			Signed: "{timestamp}.{body}", Tolerance: "5m", Name: "key",
		},
		GraphURL: "https://graph.example.com/v25.0", Each: "body.leads", AcceptGet: true, Handshake: "meta",
		OnInvalid: "keep",
	}
	warnings := []ArrivalWarning{{
		Field: "status", Code: "STATUS_UNKNOWN", Message: "cannot be used, and is kept as a custom field",
	}}
	return []Data{
		LeadCreated{
			ContactUID: "c_8xk2", LeadFields: LeadFields{
				Name: "Zoë \"Zo\" Müller", Phone: "+491701234567", Email: "zoe@example.com", Status: "new",
				Temperature: "warm", OpportunityID: "01JQKXZ8V4W9H6M3T2R5N7P0AB", OpportunityValue: "0",
				CustomFields: fields,
			}, NameDerived: true, Source: "facebook ads", Metadata: meta,
			IP: "2001:db8::1", UserAgent: "Mozilla/5.0 <&>", VisitorID: "v-1",
			Visitor: "visitor-acme-00112233445566778899aabbccddeeff", Shared: "email", Campaign: campaign,
			Changed:  []string{"name", "phone"},
			Purposes: Purposes{map[string]bool{"whatsapp": true}, []string{"whatsapp"}},
			ArrivalRef: ArrivalRef{
				IntakeID: "01JQKXZ8V4W9H6M3T2R5N7P0AG", ArrivalID: "01JQKXZ8V4W9H6M3T2R5N7P0AH", ReceivedAt: at,
			},
		},
		LeadMerged{
			Source: "google", NewSource: true, LeadFields: LeadFields{
				Name: "Zoë Müller", Phone: "+491701234567", Email: "zoe@example.com", Status: "won",
				Temperature: "hot", OpportunityID: "01JQKXZ8V4W9H6M3T2R5N7P0AD", OpportunityValue: "1999.90",
				CustomFields: fields,
			},
			EmailHeldBy: "01JQKXZ8V4W9H6M3T2R5N7P0AC", Metadata: meta,
			IP: "192.0.2.1", UserAgent: "curl/8", VisitorID: "v-2",
			Visitor: "visitor-acme-00112233445566778899aabbccddeeff", Shared: "phone", Campaign: campaign,
			Changed:  []string{"status"},
			Purposes: Purposes{map[string]bool{"whatsapp": false}, []string{"whatsapp"}},
			ArrivalRef: ArrivalRef{
				IntakeID: "01JQKXZ8V4W9H6M3T2R5N7P0AG", ArrivalID: "01JQKXZ8V4W9H6M3T2R5N7P0AH", ReceivedAt: at,
			},
		},
		LeadUpdated{
			LeadFields: LeadFields{
				Name: "Zoë", Status: "won", Temperature: "cold",
				OpportunityID: "01JQKXZ8V4W9H6M3T2R5N7P0AD", OpportunityValue: "12.50", CustomFields: fields,
			}, RemovedFields: []string{"city"}, Changed: []string{"name"},
		},
		LeadReleased{
			Field: "phone", Phone: "+491701234567", Email: "zoe@example.com", Current: "+491701234568", Name: "zoe",
			Changed: []string{"name", "phone"},
		},
		LeadConsented{
			Purposes: Purposes{map[string]bool{"whatsapp": false}, []string{"whatsapp"}},
			Given:    jsontext.Value(`{"purpose":"whatsapp","granted":false,"text":"Größe"}`),
		},
		LeadJoinedInto{Into: "01JQKXZ8V4W9H6M3T2R5N7P0AB"},
		LeadJoined{
			From: "01JQKXZ8V4W9H6M3T2R5N7P0AB", Joined: []string{"01JQKXZ8V4W9H6M3T2R5N7P0AC"},
			Was: LeadSnapshot{
				ContactUID: "c_8xk2", LeadFields: LeadFields{
					Name: "Zoë", Phone: "+491701234567", Email: "zoe@example.com", Status: "new",
					Temperature: "warm", OpportunityID: "01JQKXZ8V4W9H6M3T2R5N7P0AD", OpportunityValue: "0",
					CustomFields: fields,
				}, NameDerived: true,
				Phones: []string{"+491701234567", "+491701234568"}, Emails: []string{"zoe@example.com"},
				FirstSeen: map[string]time.Time{"+491701234568": at},
				Source:    "api", Metadata: meta, VisitorIDs: []string{"v-1"}, CreatedAt: at,
				Consents: map[string]ConsentState{"whatsapp": {
					Granted: true, At: at, EventID: "01JQKXZ8V4W9H6M3T2R5N7P0AF", Words: "0011223344556677",
				}},
				Sources: []SourceSnapshot{{
					Source: "api", FirstSeenAt: at, LastSeenAt: at.Add(time.Hour), Arrivals: 2,
					Credential: "token:01JQKXZ8V4W9H6M3T2R5N7P0AE", Metadata: meta, IP: "203.0.113.7",
					UserAgent: "Mozilla/5.0", RequestID: "r-1", Changed: []string{"name"},
				}},
			},
			Origins: []SplitOrigin{{LeadID: "01JQKXZ8V4W9H6M3T2R5N7P0AD", Before: 7}}, OpportunityValue: "0",
			Changed:  []string{"phone"},
			Purposes: Purposes{map[string]bool{"whatsapp": true}, []string{"whatsapp"}},
		},
		LeadSplit{
			Into: "01JQKXZ8V4W9H6M3T2R5N7P0AB", From: "01JQKXZ8V4W9H6M3T2R5N7P0AC", Undone: true,
			Touches: []string{"01JQKXZ8V4W9H6M3T2R5N7P0AE"}, Arrivals: []string{"01JQKXZ8V4W9H6M3T2R5N7P0AF"},
			Joined:  []string{"01JQKXZ8V4W9H6M3T2R5N7P0AG"},
			Origins: []SplitOrigin{{LeadID: "01JQKXZ8V4W9H6M3T2R5N7P0AC", Before: 7}}, Status: "new", StatusAt: at,
			OpportunityValue: "0", Purposes: Purposes{map[string]bool{"call": true}, []string{"call", "whatsapp"}},
			Is: LeadSnapshot{
				ContactUID: "c_8xk2", LeadFields: LeadFields{Name: "Zoë"}, Phones: []string{"+491701234567"},
				Source: "api", Sources: []SourceSnapshot{{Source: "api", FirstSeenAt: at, LastSeenAt: at}},
				CreatedAt: at,
			},
		},
		LeadRefused{
			Source: "google", Code: "DUPLICATE_LEAD_EMAIL",
			LeadID: "01JQKXZ8V4W9H6M3T2R5N7P0AB", Other: "01JQKXZ8V4W9H6M3T2R5N7P0AC",
		},
		LeadErased{
			Leads:    []string{"01JQKXZ8V4W9H6M3T2R5N7P0AC"},
			Claims:   []string{"claim-00112233445566778899aabbccddeeff"},
			Visitors: []string{"visitor-acme-00112233445566778899aabbccddeeff"},
			Origins:  []SplitOrigin{{LeadID: "01JQKXZ8V4W9H6M3T2R5N7P0AC", Before: 7}},
			KeyCommitments: []KeyCommitment{{
				LeadID:     "01JQKXZ8V4W9H6M3T2R5N7P0AC",
				Commitment: "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
			}},
		},
		DataRevealed{LeadID: "01JQKXZ8V4W9H6M3T2R5N7P0AB", ArrivalID: "01JQKXZ8V4W9H6M3T2R5N7P0AH", What: "lead"},
		DataExported{
			ExportID: "01JQKXZ8V4W9H6M3T2R5N7P0AB", What: "leads", Format: "csv",
			Filter: map[string]string{"status": "won"}, Rows: new(int64(3)), Complete: new(true),
		},
		DataSearched{What: "leads", Fields: []string{"phone"}},
		ImportStarted{RunID: "01JQKXZ8V4W9H6M3T2R5N7P0AB", Reading: "ffeeddccbbaa99887766554433221100"},
		ImportUndone{RunID: "01JQKXZ8V4W9H6M3T2R5N7P0AB", Leads: 2, Stayed: 1},
		ImportFinished{
			RunID: "01JQKXZ8V4W9H6M3T2R5N7P0AB", Rows: 5, Created: 1, Merged: 2, Refused: 1, Invalid: 1, Repeated: 2,
		},
		ClaimTaken{Kind: "phone", Holder: "01JQKXZ8V4W9H6M3T2R5N7P0AB"},
		ClaimReleased{Kind: "token-slot", Holder: "01JQKXZ8V4W9H6M3T2R5N7P0AE"},
		ClaimBound{
			Kind: "idempotency", Digest: []byte("0123456789abcdef"),
			Stream: "lead-01JQKXZ8V4W9H6M3T2R5N7P0AB", EventID: "01JQKXZ8V4W9H6M3T2R5N7P0AD", Revision: 7,
		},
		ClaimKeyFixed{Fingerprint: []byte("0123456789abcdef")},
		OriginFixed{Origin: "leadlog-log/01m7ygzvzwe6s8ryn49qgmf6bh"},
		TokenCreated{Name: "CRM", Prefix: "ll_live_4f", Hash: hash, Days: 90, ExpiresAt: at, Slot: 5},
		TokenRotated{Prefix: "ll_live_9c", Hash: hash, ExpiresAt: at.Add(time.Hour), PreviousExpiresAt: at},
		TokenExpiring{ExpiresAt: at},
		TokenDeleted{},
		TokenUsed{},
		TokenRefused{Reason: "rotated", Prefix: "ll_live_4f"},
		WebhookRegistered{
			WebhookSettings: WebhookSettings{
				URL: "https://example.com/hook?a=1&b=2", Events: []string{"lead.created", "lead.merged"},
				Description: "CRM sync",
			},
			Slot: 1,
		},
		WebhookUpdated{
			WebhookSettings: WebhookSettings{
				URL: "https://example.com/other", Events: []string{"*"}, Description: "ERP sync",
				Filter: "type == 'lead.created'", Ordering: "lead", RateLimit: 2.5,
				HeaderNames: []string{"Authorization", "X-Shop"},
			},
			Changed: []string{"url", "events", "filter", "ordering", "rateLimit", "headers"},
		},
		WebhookDisabled{Reason: "failing"},
		WebhookEnabled{},
		WebhookRotated{PreviousUntil: at},
		WebhookTested{},
		WebhookRetried{
			DeliveryID: "01JQKXZ8V4W9H6M3T2R5N7P0AF", Since: at, DeliveryIDs: []string{"01JQKXZ8V4W9H6M3T2R5N7P0AG"},
		},
		WebhookReplayed{Since: at, Until: at.Add(time.Hour), Generation: 3},
		WebhookReplayEnded{Generation: 3, Error: "failed"},
		WebhookDeleted{},
		IntakeCreated{IntakeSettings: intake, Slot: 3, Demo: true},
		IntakeChanged{IntakeSettings: intake, Changed: []string{"name", "secret"}},
		IntakeRotated{OldUntil: at},
		IntakeDeleted{},
		IntakeSilent{Since: at},
		IntakeResumed{ArrivedAt: at},
		IntakeFailing{Since: at, ArrivalID: "01JQKXZ8V4W9H6M3T2R5N7P0AH", Error: "phone or email is required"},
		IntakeRecovered{CapturedAt: at},
		AccountConfigured{
			Name: "Söhne GmbH", Features: []string{"webhooks"}, Stages: []string{"new", "won"}, Region: "DE",
			Currency: "EUR", RateLimit: &rate, RateBurst: &burst, TokensSeeLeads: new(false), VisitorDays: 30,
			Quarantine: true, QuarantineDays: 90, WonStages: []string{"won"}, RetentionDays: 365,
			KeepStages: []string{"won", "kept"}, StoragePerDay: new(0),
			IgnoredContacts: []string{"+919999999999", "*@example.org"}, SharedAfter: new(0),
			MaskInConsole: new(false),
		},
		JWTsRevoked{NotBefore: at},
		StorageLow{StoragePerDay: 1 << 30},
		SpendSet{Rows: []SpendRow{{
			"2026-01-31", SpendKey{"google_ad", "google", "cpc", "größe"}, "1234.5",
		}}},
		VisitorActed{
			VisitorID: "v-1", Kind: "click", URL: "https://example.com/größe?a=1&b=2", Title: "Größe",
			Referrer: "android-app://com.example", At: at, Properties: fields, Touch: true, Campaign: campaign,
		},
		VisitorForgotten{Keys: []string{"-9007199254740993", "7"}},
		ArrivalReceived{
			IntakeID: "01JQKXZ8V4W9H6M3T2R5N7P0AG", TokenID: "01JQKXZ8V4W9H6M3T2R5N7P0AE", ReceivedAt: at,
			ExpiresAt: at.AddDate(0, 0, 30), DeliveryID: "d-1", Raw: raw,
		},
		ArrivalFetched{Raw: raw},
		ArrivalRedelivered{Raw: raw},
		ArrivalCaptured{
			LeadID: "01JQKXZ8V4W9H6M3T2R5N7P0AB", EventID: "01JQKXZ8V4W9H6M3T2R5N7P0AD", Merged: true,
			Warnings: warnings,
		},
		ArrivalRefused{
			Code: "DUPLICATE_LEAD_EMAIL", LeadID: "01JQKXZ8V4W9H6M3T2R5N7P0AB", Other: "01JQKXZ8V4W9H6M3T2R5N7P0AC",
		},
		ArrivalQuarantined{
			IntakeID: "01JQKXZ8V4W9H6M3T2R5N7P0AG", TokenID: "01JQKXZ8V4W9H6M3T2R5N7P0AE", ReceivedAt: at,
			ExpiresAt: at.AddDate(0, 0, 30),
			Reasons:   []ArrivalReason{{Field: "phone", Message: "phone is not a valid number"}}, Warnings: warnings,
		},
		ArrivalResubmitted{Set: fields, Fetch: true},
		ArrivalDiscarded{Reason: DiscardedByOwner},
		ArrivalExpired{},
	}
}

func goldenPath(eventType string) string { return filepath.Join("testdata", eventType+".json") }

// golden returns the stored form of a type's sample: its file without the final line break.
func golden(t testing.TB, eventType string) []byte {
	t.Helper()
	content, err := os.ReadFile(goldenPath(eventType))
	require.NoError(t, err, "a new type gets its file by: go test ./eventstore/event -write-missing")
	return bytes.TrimSuffix(content, []byte("\n"))
}

func TestCatalogue_GoldenFiles(t *testing.T) {
	t.Parallel()
	for _, sample := range samples() {
		t.Run(sample.EventType(), func(t *testing.T) {
			t.Parallel()
			eventType, encoded, err := Encode(sample)
			require.NoError(t, err)
			require.Equal(t, sample.EventType(), eventType)
			if *writeMissing {
				writeGolden(t, eventType, encoded)
			}
			require.Equal(t, string(golden(t, eventType)), string(encoded))

			decoded, err := Decode(eventType, golden(t, eventType))
			require.NoError(t, err)
			require.Equal(t, sample, decoded)
		})
	}
}

func writeGolden(t *testing.T, eventType string, encoded []byte) {
	t.Helper()
	file, err := os.OpenFile(goldenPath(eventType), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return
	}
	require.NoError(t, err)
	_, err = file.Write(append(encoded, '\n'))
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

func TestCatalogue_Complete(t *testing.T) {
	t.Parallel()
	catalogue := slices.Sorted(maps.Keys(catalogue))
	sampled := Types(samples()...)
	slices.Sort(sampled)
	require.Equal(t, catalogue, sampled, "a type without a sample, or a sample without a type")

	files, err := filepath.Glob(goldenPath("*"))
	require.NoError(t, err)
	var stored []string
	for _, file := range files {
		stored = append(stored, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	require.Equal(t, catalogue, stored,
		"a type without a golden file, or a golden file of a removed type, which logs still have")
}

// A fact of a type that is not in the catalogue cannot be appended.
func TestCatalogue_HasEveryType(t *testing.T) {
	t.Parallel()
	source, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var declared []string
	for _, file := range source {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, method := range regexp.MustCompile(`(?m)^func \(\w+\) EventType\(\) string +\{ return "([^"]+)" \}`).
			FindAllSubmatch(text, -1) {
			declared = append(declared, string(method[1]))
		}
	}
	slices.Sort(declared)
	require.Equal(t, declared, Catalogue())
}

// The JSON name of a field that is empty in the sample is not tested. A field of a part, such as LeadFields, is in a
// sample of some type.
func TestSamples_FillEveryField(t *testing.T) {
	t.Parallel()
	parts := map[string]bool{} // by field: whether a sample has it
	for _, sample := range samples() {
		value := reflect.ValueOf(sample)
		for i := range value.NumField() {
			require.False(t, value.Field(i).IsZero(), "%s leaves %s empty", sample.EventType(),
				value.Type().Field(i).Name)
			fillParts(parts, value.Field(i))
		}
	}
	require.NotEmpty(t, parts)
	for field, filled := range parts {
		require.True(t, filled, "every sample leaves %s empty", field)
	}
}

func fillParts(parts map[string]bool, of reflect.Value) {
	switch of.Kind() {
	case reflect.Pointer:
		of = of.Elem()
	case reflect.Slice:
		for i := range of.Len() {
			fillParts(parts, of.Index(i))
		}
	}
	if of.Kind() != reflect.Struct || of.Type().PkgPath() != reflect.TypeFor[LeadFields]().PkgPath() {
		return
	}
	for i := range of.NumField() {
		name := of.Type().Name() + "." + of.Type().Field(i).Name
		parts[name] = parts[name] || !of.Field(i).IsZero()
		fillParts(parts, of.Field(i))
	}
}

// Acts of users are in the trail. Only these types are not: what happens to leads, visitors and arrivals, what has a
// record of its own, and what the service itself appends.
func TestTrailTypes_ListEveryAct(t *testing.T) {
	t.Parallel()
	others := Types(
		LeadCreated{}, LeadMerged{}, LeadUpdated{}, LeadJoinedInto{}, LeadRefused{}, VisitorActed{}, VisitorForgotten{},
		ArrivalReceived{}, ArrivalFetched{}, ArrivalRedelivered{}, ArrivalCaptured{}, ArrivalRefused{}, ArrivalQuarantined{},
		ArrivalResubmitted{}, ArrivalDiscarded{}, ArrivalExpired{},
		ClaimTaken{}, ClaimReleased{}, ClaimBound{}, ClaimKeyFixed{}, OriginFixed{}, TokenUsed{},
	)
	require.ElementsMatch(t, Catalogue(), slices.Concat(TrailTypes(), others))
}
