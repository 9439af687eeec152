package lead

import (
	"cmp"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Campaign returns the campaign of a touch from its utm parameters. It omits values that could identify the person:
// those with an @, and those that contain the phone. They stay among the personal data.
func Campaign(value func(name string) string, phone string) event.Campaign {
	plain := func(name string) string {
		given := value(name)
		if Blank(given) || contact.NamesPerson(given, phone) {
			return ""
		}
		return given
	}
	return event.Campaign{
		UTMSource: plain("utm_source"), UTMMedium: plain("utm_medium"), UTMCampaign: plain("utm_campaign"),
		UTMID: plain("utm_id"),
	}
}

// campaign is that of the arrival's metadata.
func (a Arrival) campaign() event.Campaign {
	return Campaign(func(name string) string { return Scalar(a.Metadata[name]) }, a.Phone)
}

// Origin has the campaign, click ids, landing page and referrer of a touch. Missing values are nil.
type Origin struct {
	UTMSource   *string           `json:"utmSource"`
	UTMMedium   *string           `json:"utmMedium"`
	UTMCampaign *string           `json:"utmCampaign"`
	UTMID       *string           `json:"utmId"`
	UTMTerm     *string           `json:"utmTerm"`
	UTMContent  *string           `json:"utmContent"`
	ClickIDs    map[string]string `json:"clickIds"`
	LandingPage *string           `json:"landingPage"`
	Referrer    *string           `json:"referrer"`
}

// PageQuery returns the parameters of a page's URL, each with its first value as a text. Parameters whose name is not a
// text are left out.
func PageQuery(address string) map[string]string {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil
	}
	query := map[string]string{}
	for name, values := range parsed.Query() {
		if name == event.Text(name) {
			query[name] = event.Text(values[0])
		}
	}
	return query
}

// clickIDs are the parameters by which ad platforms name a click.
var clickIDs = []string{"gclid", "gbraid", "wbraid", "dclid", "fbclid", "msclkid", "ttclid", "twclid", "li_fat_id"}

// NewOrigin returns the origin of a touch. Sealed values of a campaign are only in the metadata.
func NewOrigin(plain event.Campaign, metadata map[string]jsontext.Value) Origin {
	given := func(name string) *string {
		if value := Scalar(metadata[name]); !Blank(value) {
			return &value
		}
		return nil
	}
	or := func(value, name string) *string {
		if value != "" {
			return &value
		}
		return given(name)
	}
	o := Origin{
		UTMSource: or(plain.UTMSource, "utm_source"), UTMMedium: or(plain.UTMMedium, "utm_medium"),
		UTMCampaign: or(plain.UTMCampaign, "utm_campaign"), UTMID: or(plain.UTMID, "utm_id"),
		UTMTerm: given("utm_term"), UTMContent: given("utm_content"), ClickIDs: map[string]string{},
		LandingPage: cmp.Or(given("page_url"), given("landing_page")), Referrer: given("referrer"),
	}
	for _, name := range clickIDs {
		if value := given(name); value != nil {
			o.ClickIDs[name] = *value
		}
	}
	return o
}

// Scalar returns a text, or a number as it was written. Other values are none.
func Scalar(v jsontext.Value) string {
	if v.Kind() == jsontext.KindNumber {
		return string(v)
	}
	s, _ := text(v)
	return s
}
