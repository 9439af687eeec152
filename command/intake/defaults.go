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
	formPhones = names{"mobile", "phone", "tel", "your-tel", "phone_number"}
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

func itemOf(n names) string { return "pick(item, " + n.String() + ")" }

// itemEach returns a list of the members that are not empty; of contacts, the first that can be used counts.
func itemEach(n names) string {
	return "first([" + n.String() + ".map(name, pick(item, [name]) != null, item[name])])"
}

func itemOnly(n names) string    { return "only(item, " + n.String() + ")" }
func itemWithout(n names) string { return "omit(item, " + n.String() + ")" }

const firstAndLast = `words([pick(item, ["first_name"]), pick(item, ["last_name"])])`

// asKnown adds the fields of a person that the mapping lacks, as the names of the answers say.
func asKnown(mapping map[string]string) map[string]string {
	known := map[string]string{
		"name":            `pick(known, ["name"])`,
		"email":           `pick(known, ["email"])`,
		"phone":           `pick(known, ["phone"])`,
		"visitorId":       `pick(known, ["visitorId"])`,
		fieldCustomFields: `known.rest`,
	}
	maps.Copy(known, mapping)
	return known
}

// asCaptured adds the fields of a lead that the mapping lacks: a post has them under their own names, as the body of a
// capture does.
func asCaptured(mapping map[string]string) map[string]string {
	for _, name := range lead.FieldNames() {
		switch {
		case mapping[name] != "":
		case name == "phone", name == "email":
			mapping[name] = itemEach(names{name})
		default:
			mapping[name] = itemOf(names{name})
		}
	}
	return mapping
}

var defaults = map[string]map[string]string{
	Form: asKnown(map[string]string{
		fieldMetadata:   `known.metadata`,
		fieldDeliveryID: `pick(headers, ["idempotency-key"])`,
	}),
	Webhook: asCaptured(map[string]string{
		"name":        "first([" + itemOf(all(captureNames, formNames)) + ", " + firstAndLast + "])",
		"email":       itemEach(formEmails),
		"phone":       itemEach(formPhones),
		"visitorId":   itemOf(visitorIDs),
		fieldMetadata: "merge([" + itemOnly(campaign) + ", pick(item, [\"metadata\"])])",
		fieldCustomFields: "merge([" +
			itemWithout(all(captured, formNames, formParts, formEmails, formPhones, campaign)) +
			`, pick(item, ["fields"]), pick(item, ["industryData"]), pick(item, ["customFields"])])`,
	}),
	StandardWebhooks: asCaptured(map[string]string{
		"name":        itemOf(captureNames),
		"visitorId":   itemOf(visitorIDs),
		fieldMetadata: `pick(item, ["metadata"])`,
		fieldCustomFields: "merge([" + itemWithout(captured) + `, pick(item, ["fields"]), pick(item, ` +
			`["industryData"]), pick(item, ["customFields"])])`,
		fieldDeliveryID: `pick(headers, ["webhook-id", "svix-id"])`,
	}),
	GoogleLeadForm: asKnown(map[string]string{
		fieldMetadata: `merge([known.metadata, only(body, ["campaign_id", "form_id", "adgroup_id", "creative_id", ` +
			`"asset_group_id", "lead_submit_time"]), {"gclid": body.?gcl_id}])`,
		fieldDeliveryID: `body.lead_id`,
	}),
	MetaLeadAds: asKnown(map[string]string{
		fieldMetadata: `merge([known.metadata, only(body, ["page_id", "form_id", "ad_id", "ad_name", "adgroup_id", ` +
			`"adset_id", "adset_name", "campaign_id", "campaign_name", "platform", "is_organic", "created_time"])])`,
		// A box that is not ticked is no withdrawal.
		fieldConsent: `body.custom_disclaimer_responses.map(c, ` +
			`has(c.checkbox_key) && !(string(c.?is_checked.orValue("")).lowerAscii() in ["", "0", "false"]), ` +
			`{"purpose": c.checkbox_key, "granted": true, ?"text": c.?text, "method": "meta_lead_ads"})`,
		fieldDeliveryID: `body.leadgen_id`,
	}),
	Typeform: asKnown(map[string]string{
		fieldMetadata: `merge([{"form_id": body.form_response.?form_id}, known.metadata])`,
		// Typeform sends a response that was not finished, and again when it is.
		fieldDeliveryID: `body.form_response.token + ` +
			`(body.?event_type == optional.of("form_response_partial") ? "/partial" : "")`,
	}),
	WhatsApp: {
		"name":  `pick(item.?contact.profile, ["name"])`,
		"phone": `"+" + item.message.from`,
		// a text, the choice of a button or of a list, or the caption of a picture
		fieldCustomFields: `{"message": first([item.?message.text.body, item.?message.button.text, ` +
			`item.?message.interactive.button_reply.title, item.?message.interactive.list_reply.title, ` +
			`item.?message.image.caption])}`,
		fieldMetadata:   `merge([item.?message.referral, {"phone_number_id": item.?metadata.phone_number_id}])`,
		fieldDeliveryID: `item.message.id`,
	},
	Razorpay: {
		"name": `first([body.?payload.payment_link.entity.customer.name, pick(` + razorpayNotes +
			`, ["name", "full_name"])])`,
		"email": `first([body.?payload.payment_link.entity.customer.email, body.?payload.payment.entity.email])`,
		"phone": `first([body.?payload.payment_link.entity.customer.contact, ` +
			`body.?payload.payment.entity.contact])`,
		"opportunityValue": `minor(` + razorpayEntity + `.amount, ` + razorpayEntity + `.currency)`,
		fieldCustomFields:  razorpayNotes,
		fieldMetadata: `merge([{"event": body.?event, "payment_id": body.?payload.payment.entity.id, ` +
			`"order_id": body.?payload.payment.entity.order_id, "payment_link_id": ` +
			`body.?payload.payment_link.entity.id}])`,
		fieldDeliveryID: `pick(headers, ["x-razorpay-event-id"])`,
	},
}

const (
	razorpayEntity = `first([body.?payload.payment.entity, body.?payload.payment_link.entity])`
	razorpayNotes  = `merge([body.?payload.payment_link.entity.notes, body.?payload.payment.entity.notes])`
)
