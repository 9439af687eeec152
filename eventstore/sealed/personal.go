package sealed

import (
	"strings"

	"github.com/leadlog/leadlog/eventstore/event"
)

// declaration lists the personal and the plain members of a type's JSON, and the personal ones that are content.
type declaration struct {
	personal, plain, content []string
	// bare is a type that is not sealed, not even the origin of the request: it erases a person's data, and must be readable without a key.
	bare bool
}

// declared lists the personal members of all types. A personal member is sealed with its whole value. On the streams of leads and visitors,
// undeclared members are sealed too, so that a missing declaration leaks nothing; a test requires a declaration of each member of each type
// in the catalogue.
var declared = map[string]declaration{
	event.LeadCreated{}.EventType(): {
		personal: list("name phone email customFields metadata ip userAgent visitorId"),
		plain:    list("contactUID nameDerived status leadTemperature opportunityId opportunityValue source visitor changed" + campaign + arrival),
	},
	event.LeadMerged{}.EventType(): {
		personal: list("name phone email customFields metadata ip userAgent visitorId"),
		plain: list("source newSource emailHeldBy status leadTemperature opportunityId opportunityValue visitor changed" + campaign +
			arrival),
	},
	event.LeadUpdated{}.EventType(): {
		personal: list("name phone email customFields removedFields"),
		plain:    list("status leadTemperature opportunityId opportunityValue changed"),
	},
	event.LeadReleased{}.EventType(): {
		personal: list("phone email current name"),
		plain:    list("field changed"),
	},
	event.LeadJoinedInto{}.EventType(): {plain: list("into")},
	event.LeadJoined{}.EventType(): {
		personal: list("was"),
		plain:    list("from joined changed opportunityValue"),
	},
	event.LeadRefused{}.EventType(): {plain: list("source code leadId other")},
	event.LeadErased{}.EventType():  {plain: list("leads claims visitors keyCommitments"), bare: true},

	event.VisitorActed{}.EventType(): {
		personal: list("visitorId url title referrer properties"),
		plain:    list("type at touch" + campaign),
	},
	event.VisitorForgotten{}.EventType(): {plain: list("keys"), bare: true},

	event.ArrivalReceived{}.EventType(): {
		personal: list("deliveryId"),
		content:  list("raw"),
		plain:    list("intakeId tokenId receivedAt expiresAt"),
	},
	event.ArrivalFetched{}.EventType():     {content: list("raw")},
	event.ArrivalCaptured{}.EventType():    {plain: list("leadId eventId merged")},
	event.ArrivalRefused{}.EventType():     {plain: list("code leadId other")},
	event.ArrivalQuarantined{}.EventType(): {plain: list("reasons")},
	event.ArrivalResubmitted{}.EventType(): {personal: list("set"), plain: list("fetch")},
	event.ArrivalDiscarded{}.EventType():   {plain: list("reason"), bare: true},
	event.ArrivalExpired{}.EventType():     {bare: true},

	event.ClaimTaken{}.EventType():    {plain: list("kind holder")},
	event.ClaimReleased{}.EventType(): {plain: list("kind holder")},
	event.ClaimBound{}.EventType():    {plain: list("kind digest stream eventId revision")},
	event.ClaimKeyFixed{}.EventType(): {plain: list("fingerprint")},
	event.OriginFixed{}.EventType():   {plain: list("origin")},

	event.DataRevealed{}.EventType():   {plain: list("leadId arrivalId what")},
	event.DataExported{}.EventType():   {plain: list("exportId what format filter rows complete")},
	event.DataSearched{}.EventType():   {plain: list("what fields")},
	event.ImportFinished{}.EventType(): {plain: list("rows created merged refused invalid repeated")},

	event.TokenCreated{}.EventType():  {plain: list("name prefix hash days expiresAt slot")},
	event.TokenRotated{}.EventType():  {plain: list("prefix hash expiresAt previousExpiresAt")},
	event.TokenExpiring{}.EventType(): {plain: list("expiresAt")},
	event.TokenDeleted{}.EventType():  {},
	event.TokenUsed{}.EventType():     {},
	event.TokenRefused{}.EventType():  {plain: list("reason prefix")},

	event.WebhookRegistered{}.EventType():  {plain: list("url events description filter ordering rateLimit headerNames slot")},
	event.WebhookUpdated{}.EventType():     {plain: list("url events description filter ordering rateLimit headerNames changed")},
	event.WebhookDisabled{}.EventType():    {plain: list("reason")},
	event.WebhookEnabled{}.EventType():     {},
	event.WebhookRotated{}.EventType():     {plain: list("previousUntil")},
	event.WebhookTested{}.EventType():      {},
	event.WebhookRetried{}.EventType():     {plain: list("deliveryId since deliveryIds")},
	event.WebhookReplayed{}.EventType():    {plain: list("since until generation")},
	event.WebhookReplayEnded{}.EventType(): {plain: list("generation error")},
	event.WebhookDeleted{}.EventType():     {},

	event.IntakeCreated{}.EventType(): {
		plain: list("name kind source enabled origins redirect honeypot challenge rateLimit expectEvery mapping signature graphUrl slot demo"),
	},
	event.IntakeChanged{}.EventType(): {
		plain: list("name kind source enabled origins redirect honeypot challenge rateLimit expectEvery mapping signature graphUrl changed"),
	},
	event.IntakeRotated{}.EventType(): {},
	event.IntakeDeleted{}.EventType(): {},
	event.IntakeSilent{}.EventType():  {plain: list("since")},
	event.IntakeResumed{}.EventType(): {plain: list("arrivedAt")},

	event.AccountConfigured{}.EventType(): {
		plain: list("name features stages region currency rateLimit rateBurst tokensSeeLeads visitorDays quarantine quarantineDays wonStages storagePerDay"),
	},
	event.JWTsRevoked{}.EventType(): {plain: list("notBefore")},
	event.StorageLow{}.EventType():  {plain: list("storagePerDay")},
}

// Members of event.Campaign and event.KeptArrival.
const (
	campaign = " utmSource utmMedium utmCampaign utmId"
	arrival  = " intakeId arrivalId receivedAt"
)

func list(names string) []string { return strings.Fields(names) }

// About reports whether a stream is about a person. Each such stream has its own key.
func About(stream string) bool {
	return strings.HasPrefix(stream, event.LeadPrefix) || strings.HasPrefix(stream, event.VisitorPrefix) ||
		strings.HasPrefix(stream, event.ArrivalPrefix)
}

// bare reports whether a type is stored unsealed, even on streams about a person.
func bare(eventType string) bool { return declared[eventType].bare }
