package lead

import "slices"

// DefaultSource replaces every source that is not one of canonicalSources.
const DefaultSource = "api"

// canonicalSources may be named by metadata.source, spelled like this. manual and csv_import are sources too, but only
// the service itself may set them.
var canonicalSources = []string{
	"api", "webhook", "website", "chatbot", "whatsapp", "google_form", "facebook_ad", "google_ad",
	"ai_powered_lead", "payment_page_drop", "landing",
}

// curated sources are records that a person chose: a repeat is a mistake, and is refused.
var curated = []string{"manual", "csv_import", "api", "webhook"}

// selfService sources are people and event streams: a repeat is the person coming back, and always merges.
var selfService = []string{
	"website", "chatbot", "landing", "whatsapp", "google_form", "ai_powered_lead", "payment_page_drop",
}

// isCurated and isSelfService leave out facebook_ad and google_ad: ad connectors deliver again, so that
// a repeat merges, but they do not override a clash of two leads.
func isCurated(source string) bool     { return slices.Contains(curated, source) }
func isSelfService(source string) bool { return slices.Contains(selfService, source) }

// Canonical reports whether metadata.source may name a source.
func Canonical(source string) bool { return slices.Contains(canonicalSources, source) }

// CanonicalSources returns the sources that metadata.source may name.
func CanonicalSources() []string { return slices.Clone(canonicalSources) }

// Sources returns every source that a lead can have.
func Sources() []string { return slices.Concat(canonicalSources, []string{"manual", "csv_import"}) }
