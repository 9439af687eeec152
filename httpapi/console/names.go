package console

import (
	"cmp"
	"strings"
)

// names are the display names of the identifiers that the API uses for sources, kinds, states, types and views.
var names = map[string]string{
	// Sources. Some are kinds of intakes too.
	"api": "API", "webhook": "Webhook", "website": "Website", "chatbot": "Chatbot", "whatsapp": "WhatsApp",
	"google_form": "Google Forms", "facebook_ad": "Facebook Ads", "google_ad": "Google Ads",
	"ai_powered_lead": "AI lead scoring", "payment_page_drop": "Abandoned payment page",
	"landing": "Landing page", "manual": "Manual entry", "csv_import": "CSV import",

	// Kinds of intakes.
	"form": "Web form", "google_lead_form": "Google lead form", "meta_lead_ads": "Meta lead ads",
	"typeform": "Typeform", "razorpay": "Razorpay",
	"standard_webhooks": "Standard Webhooks",

	// States of arrivals, deliveries, endpoints, intakes and tokens: badges, in lower case.
	"received": "being fetched", "captured": "captured", "refused": "refused", "quarantined": "quarantined",
	"discarded": "discarded", "expired": "expired", "queued": "queued", "delivered": "delivered", "failed": "failed",
	"cancelled": "cancelled", "enabled": "enabled", "disabled": "disabled", "active": "active",
	"silent": "nothing arrives", "failing": "fails", "paused": "paused", "deleted": "deleted",

	// Types of events.
	"lead.created": "Lead created", "lead.merged": "Lead merged", "lead.updated": "Lead updated",
	"lead.released": "Contact detail released", "lead.erased": "Lead erased", "lead.joined": "Leads joined",
	"lead.split": "Leads split", "lead.consented": "Consent recorded", "lead.consent": "Consent changed",
	"token.created": "Token created", "token.rotated": "Token rotated", "token.expiring": "Token about to expire",
	"token.deleted":  "Token deleted",
	"token.refused":  "Token refused",
	"intake.created": "Intake created", "intake.changed": "Intake changed", "intake.rotated": "Intake secret rotated",
	"intake.deleted": "Intake deleted", "intake.silent": "Intake silent", "intake.resumed": "Intake receives again",
	"intake.failing": "Intake fails", "intake.recovered": "Intake works again", "arrival.quarantined": "Arrival quarantined",
	"webhook.registered": "Endpoint added", "webhook.updated": "Endpoint changed",
	"webhook.disabled": "Endpoint disabled", "webhook.enabled": "Endpoint enabled",
	"webhook.rotated": "Endpoint secret rotated", "webhook.tested": "Test event sent", "webhook.test": "Test event",
	"webhook.retried": "Delivery retried", "webhook.replayed": "Replay started", "webhook.replayended": "Replay ended",
	"webhook.deleted": "Endpoint deleted", "account.configured": "Settings changed",
	"account.storage_low": "Storage for the day almost used up", "jwt.revoked": "Sessions revoked",
	"spend.set":     "Advertising costs set",
	"data.revealed": "Personal data revealed", "data.exported": "Personal data exported",
	"data.searched":   "Personal data searched",
	"import.started":  "Import started",
	"import.finished": "Import finished",
	"import.undone":   "Import undone",

	// Outcomes of arrivals.
	"created": "New leads", "merged": "Merged",

	// Models and keys of attribution, and intervals of reports.
	"first": "First touch", "last": "Last touch", "linear": "Linear", "position": "Position-based",
	"time_decay": "Time decay", "source": "Source", "medium": "Medium", "campaign": "Campaign",
	"utmSource": "Campaign source", "intake": "Intake", "credential": "Credential",
	"day": "Day", "week": "Week", "month": "Month",
}

// viewNames are the display names of views.
var viewNames = map[string]string{
	"lead": "Leads", "source_day": "Leads by day and source", "touch": "Touches", "token": "API tokens",
	"token_event": "Token history", "account": "Account settings", "endpoint": "Webhook endpoints", "intake": "Intakes",
	"fanout": "Webhook deliveries", "visitor_activity": "Visitor activity", "refused": "Refused captures",
	"arrival": "Arrivals", "trail": "Audit log",
	"log_index": "Change feed index",
}

// reasonNames are the display names of why an endpoint is disabled.
var reasonNames = map[string]string{
	"owner": "by a user", "gone": "its URL answered 410", "failing": "all deliveries failed for days",
}

// actor shortens the identifier of a token that acted. A user is shown whole.
func actor(name string) string {
	if id, ok := strings.CutPrefix(name, "token:"); ok {
		return "token:" + short(id)
	}
	return name
}

// fieldNames are the display names of a lead's fields.
var fieldNames = map[string]string{
	"name": "Name", "phone": "Phone", "email": "Email", "status": "Status", "leadTemperature": "Temperature",
	"opportunityValue": "Value",
}

// fieldName returns the display name of a lead's field. That of another name is the name.
func fieldName(name string) string { return cmp.Or(fieldNames[name], name) }

// settingNames are the display names of the members of an audit record's data.
var settingNames = map[string]string{
	"name": "Name", "prefix": "Prefix", "expiresAt": "Expires", "expiresInDays": "Days until expiry",
	"previousExpiresAt": "Previous expiry", "reason": "Reason",
	"enabled": "Enabled", "kind": "Kind", "source": "Source", "origins": "Allowed websites",
	"redirect": "Thank-you page", "honeypot": "Honeypot field",
	"challenge": "CAPTCHA", "rateLimit": "Rate limit", "expectEvery": "Alert after silence of",
	"mapping": "Field mapping", "signature": "Sender authentication", "graphUrl": "Graph API URL",
	"each": "List of arrivals", "acceptGet": "GET is an arrival", "handshake": "Handshake",
	"onInvalid": "Invalid contacts", "oldSecretUntil": "Previous secret until", "demo": "Demo data",
	"url": "URL", "events": "Events", "description": "Description", "filter": "Filter", "ordering": "Delivery order",
	"headers": "Custom headers", "headerNames": "Custom headers", "since": "From", "until": "Until",
	"previousUntil": "Previous secret until", "generation": "Replay", "error": "Error", "arrivedAt": "Arrived",
	"capturedAt": "Captured",
	"deliveryId": "Delivery", "deliveryIds": "Deliveries", "secret": "Secret", "appSecret": "App secret",
	"verifyToken": "Verify token", "accessToken": "Page access token",
	"challenge.secret": "CAPTCHA secret key", "currency": "Currency", "features": "Features", "region": "Region",
	"stages": "Stages", "wonStages": "Won stages", "retentionDays": "Days that leads are kept",
	"keepStages": "Stages whose leads are kept", "rateBurst": "Burst",
	"maskInConsole":  "Masked in the console",
	"tokensSeeLeads": "Tokens see stored fields", "visitorDays": "Days that visitor activity is kept",
	"quarantine": "Invalid captures are kept", "quarantineDays": "Days that arrivals are kept",
	"storagePerDay": "Storage per day, in bytes", "ignoredContacts": "Ignored contacts",
	"sharedAfter": "Contacts are shared after", "notBefore": "Issued before",
	"leadId": "Lead", "arrivalId": "Arrival", "leads": "Leads", "from": "Joined lead", "into": "New lead",
	"touches": "Arrivals", "undone": "Join undone", "field": "Field",
	"exportId": "Export", "what": "Data", "fields": "Searched by", "format": "Format", "rows": "Rows",
	"runId": "Import", "file": "File", "reading": "Read as", "stayed": "Leads that stayed", "complete": "Complete",
	"created": "New leads", "merged": "Merged", "refused": "Refused", "invalid": "Invalid", "repeated": "Repeated",
}

// objectNames are the display names of an audit record's object, by the kind of the record's type.
var objectNames = map[string]string{
	"lead": "Lead", "revealed": "Lead or arrival", "exported": "Export", "token": "API token",
	"webhook": "Webhook endpoint", "intake": "Intake", "import": "Import",
}

// words returns the display name of an identifier.
func words(name string) string {
	if known, ok := names[name]; ok {
		return known
	}
	return stage(name)
}

// stage returns a stage of an account's pipeline as text. Stages are the account's own: one may have the name of
// something else, such as the state "received" of an arrival.
func stage(name string) string { return strings.ReplaceAll(name, "_", " ") }

// short returns the end of an identifier, by which people tell it from others.
func short(id string) string {
	const end = 6
	if len(id) <= 2*end {
		return id
	}
	return "…" + id[len(id)-end:]
}
