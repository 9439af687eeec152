package intake

import (
	"maps"
	"slices"
	"strings"

	"github.com/leadlog/leadlog/command/lead"
)

// DefaultMapping returns the expressions of a kind, by field. An intake's own replace them field by field.
func DefaultMapping(kind string) map[string]string { return maps.Clone(defaults[kind]) }

// Names of members.
var (
	formNames  = names{"name", "your-name", "full_name", "fullname"}
	formParts  = names{"first_name", "last_name"}
	formEmails = names{"email", "your-email", "email_address"}
	formPhones = names{"phone", "tel", "your-tel", "mobile", "phone_number"}
	visitorIDs = names{"visitorId", "visitor_id"}

	captureNames = names(lead.NameAliases())

	campaign = names{"utm_*", "gclid", "gbraid", "wbraid", "dclid", "fbclid", "msclkid", "ttclid", "twclid",
		"li_fat_id",
		"page_url", "landing_page", "referrer",
		// as leadlog.js names those of the first visit
		"first_utm_*", "first_gclid", "first_gbraid", "first_wbraid", "first_dclid", "first_fbclid", "first_msclkid",
		"first_ttclid", "first_twclid", "first_li_fat_id", "first_landing_page", "first_referrer"}

	// captured are the members of a capture's body that are not custom fields, and those of its answer.
	captured = all(lead.ReservedNames())
)

type names []string

// String returns the names as a list in CEL.
func (n names) String() string { return `["` + strings.Join(n, `", "`) + `"]` }

// all returns the names of several lists, each once.
func all(lists ...names) names {
	var joined names
	for _, name := range slices.Concat(lists...) {
		if !slices.Contains(joined, name) {
			joined = append(joined, name)
		}
	}
	return joined
}

func bodyOf(n names) string      { return "pick(body, " + n.String() + ")" }
func bodyOnly(n names) string    { return "only(body, " + n.String() + ")" }
func bodyWithout(n names) string { return "omit(body, " + n.String() + ")" }

const firstAndLast = `words([pick(body, ["first_name"]), pick(body, ["last_name"])])`

// asCaptured adds the fields of a lead that the mapping lacks: a post has them under their own names, as the body of a
// capture does.
func asCaptured(mapping map[string]string) map[string]string {
	for _, name := range lead.FieldNames() {
		if mapping[name] == "" {
			mapping[name] = bodyOf(names{name})
		}
	}
	return mapping
}

var defaults = map[string]map[string]string{
	Form: {
		"name":            `pick(known, ["name"])`,
		"email":           `pick(known, ["email"])`,
		"phone":           `pick(known, ["phone"])`,
		"visitorId":       `pick(known, ["visitorId"])`,
		fieldMetadata:     `known.metadata`,
		fieldCustomFields: `known.rest`,
		fieldDeliveryID:   `pick(headers, ["idempotency-key"])`,
	},
	Webhook: asCaptured(map[string]string{
		"name":        "first([" + bodyOf(all(captureNames, formNames)) + ", " + firstAndLast + "])",
		"email":       bodyOf(formEmails),
		"phone":       bodyOf(formPhones),
		"visitorId":   bodyOf(visitorIDs),
		fieldMetadata: "merge([" + bodyOnly(campaign) + ", pick(body, [\"metadata\"])])",
		fieldCustomFields: "merge([" +
			bodyWithout(all(captured, formNames, formParts, formEmails, formPhones, campaign)) +
			`, pick(body, ["fields"]), pick(body, ["industryData"]), pick(body, ["customFields"])])`,
	}),
	StandardWebhooks: asCaptured(map[string]string{
		"name":        bodyOf(captureNames),
		"visitorId":   bodyOf(visitorIDs),
		fieldMetadata: `pick(body, ["metadata"])`,
		fieldCustomFields: "merge([" + bodyWithout(captured) + `, pick(body, ["fields"]), pick(body, ` +
			`["industryData"]), pick(body, ["customFields"])])`,
		fieldDeliveryID: `pick(headers, ["webhook-id"])`,
	}),
	GoogleLeadForm: {
		"name": `first([pick(` + googleColumns + `, ["FULL_NAME"]),` +
			` words([pick(` + googleColumns + `, ["FIRST_NAME"]), pick(` + googleColumns + `, ["LAST_NAME"])])])`,
		"email": `pick(` + googleColumns + `, ["EMAIL"])`,
		"phone": `pick(` + googleColumns + `, ["PHONE_NUMBER"])`,
		fieldCustomFields: `omit(` + googleColumns + `, ["FULL_NAME", "FIRST_NAME", "LAST_NAME", "EMAIL", ` +
			`"PHONE_NUMBER"])`,
		fieldMetadata: `merge([only(body, ["campaign_id", "form_id", "adgroup_id", "creative_id", "asset_group_id"]),` +
			` {"gclid": body.?gcl_id}])`,
		fieldDeliveryID: `body.lead_id`,
	},
	MetaLeadAds: {
		"name": `first([pick(` + metaFields + `, ["full_name"]),` +
			` words([pick(` + metaFields + `, ["first_name"]), pick(` + metaFields + `, ["last_name"])])])`,
		"email": `pick(` + metaFields + `, ["email"])`,
		"phone": `pick(` + metaFields + `, ["phone_number"])`,
		fieldCustomFields: `omit(pairs(body.field_data.map(f, {"name": f.name, "value": size(f.values) == 1 ? ` +
			`f.values[0] : f.values}),` +
			` "name", "value"), ["full_name", "first_name", "last_name", "email", "phone_number"])`,
		fieldMetadata: `only(body, ["page_id", "form_id", "ad_id", "ad_name", "adgroup_id", "adset_id", ` +
			`"adset_name", "campaign_id", "campaign_name", "platform"])`,
		fieldDeliveryID: `body.leadgen_id`,
	},
	Typeform: {
		"email":     `first(body.form_response.answers.map(a, a.type == "email", a.email))`,
		"phone":     `first(body.form_response.answers.map(a, a.type == "phone_number", a.phone_number))`,
		"visitorId": "pick(body.form_response.?hidden, " + visitorIDs.String() + ")",
		fieldCustomFields: `pairs(body.form_response.answers.map(a, !(a.type in ["email", "phone_number"]),` +
			` {"key": a.field.?ref.or(a.field.?id), "value":` +
			` a.type == "choice" ? dyn(a.choice.?label.or(a.choice.?other)) :` +
			` a.type == "choices" ? dyn(a.choices.?labels.orValue([]) + (has(a.choices.other) ? ` +
			`[a.choices.other] : [])) :` +
			` dyn(a[?a.type])}), "key", "value")`,
		fieldMetadata:   `merge([{"form_id": body.form_response.?form_id}, body.form_response.?hidden])`,
		fieldDeliveryID: `body.form_response.token`,
	},
	WhatsApp: {
		"name":            `pick(item.?contact.profile, ["name"])`,
		"phone":           `"+" + item.message.from`,
		fieldCustomFields: `{"message": item.?message.text.body}`,
		fieldMetadata:     `merge([item.?message.referral, {"phone_number_id": item.?metadata.phone_number_id}])`,
		fieldDeliveryID:   `item.message.id`,
	},
	Razorpay: {
		"name": `pick(` + razorpayNotes + `, ["name", "full_name"])`,
		// Razorpay puts an address of its own where none was asked for.
		"email":            razorpayPayment + `.email == "void@razorpay.com" ? null : ` + razorpayPayment + `.email`,
		"phone":            razorpayPayment + `.contact`,
		"opportunityValue": `minor(` + razorpayPayment + `.amount, ` + razorpayPayment + `.currency)`,
		fieldCustomFields:  `omit(` + razorpayNotes + `, [])`,
		fieldMetadata: `merge([{"event": body.?event, "payment_id": ` + razorpayOptional + `.id, "order_id": ` +
			razorpayOptional + `.order_id}])`,
		fieldDeliveryID: `pick(headers, ["x-razorpay-event-id"])`,
	},
}

const (
	googleColumns    = `pairs(body.?user_column_data, "column_id", "string_value")`
	metaFields       = `pairs(body.?field_data, "name", "values")`
	razorpayPayment  = `body.payload.payment.entity`
	razorpayOptional = `body.?payload.payment.entity`
	razorpayNotes    = `body.?payload.payment.entity.notes`
)
