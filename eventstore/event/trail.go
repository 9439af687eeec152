package event

// TrailTypes returns the stored names of the types in the trail.
func TrailTypes() []string {
	return Types(
		TokenCreated{}, TokenRotated{}, TokenExpiring{}, TokenDeleted{}, TokenRefused{},
		WebhookRegistered{}, WebhookUpdated{}, WebhookDisabled{}, WebhookEnabled{}, WebhookRotated{},
		WebhookTested{}, WebhookRetried{}, WebhookReplayed{}, WebhookReplayEnded{}, WebhookDeleted{},
		IntakeCreated{}, IntakeChanged{}, IntakeRotated{}, IntakeDeleted{}, IntakeSilent{}, IntakeResumed{},
		IntakeFailing{}, IntakeRecovered{},
		AccountConfigured{}, JWTsRevoked{}, StorageLow{}, SpendSet{},
		LeadJoined{}, LeadSplit{}, LeadReleased{}, LeadConsented{}, LeadErased{},
		DataRevealed{}, DataExported{}, DataSearched{}, ImportStarted{}, ImportFinished{}, ImportUndone{},
	)
}

// TrailName returns the name of a type in the trail.
func TrailName(eventType string) string {
	if eventType == (JWTsRevoked{}).EventType() {
		return "jwt.revoked"
	}
	return PublicName(eventType)
}
