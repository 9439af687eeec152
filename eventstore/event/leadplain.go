package event

// The most frequent facts are read by plain where that is possible.

func (d *LeadCreated) member(p *plain, name span) {
	switch string(p.bytes(name)) {
	case "contactUID":
		p.readText(&d.ContactUID)
	case "name":
		p.readText(&d.Name)
	case "nameDerived":
		p.readTrue(&d.NameDerived)
	case "phone":
		p.readText(&d.Phone)
	case "email":
		p.readText(&d.Email)
	case "status":
		p.readText(&d.Status)
	case "leadTemperature":
		p.readText(&d.Temperature)
	case "opportunityId":
		p.readText(&d.OpportunityID)
	case "opportunityValue":
		p.readText(&d.OpportunityValue)
	case "source":
		p.readText(&d.Source)
	case "customFields":
		p.readValues(&d.CustomFields)
	case "metadata":
		p.readValues(&d.Metadata)
	case "ip":
		p.readText(&d.IP)
	case "userAgent":
		p.readText(&d.UserAgent)
	case "visitorId":
		p.readText(&d.VisitorID)
	case "changed":
		p.readList(&d.Changed)
	default:
		p.bad = true
	}
}

func (d *LeadMerged) member(p *plain, name span) {
	switch string(p.bytes(name)) {
	case "source":
		p.readText(&d.Source)
	case "newSource":
		p.readTrue(&d.NewSource)
	case "name":
		p.readText(&d.Name)
	case "phone":
		p.readText(&d.Phone)
	case "email":
		p.readText(&d.Email)
	case "emailHeldBy":
		p.readText(&d.EmailHeldBy)
	case "status":
		p.readText(&d.Status)
	case "leadTemperature":
		p.readText(&d.Temperature)
	case "opportunityId":
		p.readText(&d.OpportunityID)
	case "opportunityValue":
		p.readText(&d.OpportunityValue)
	case "customFields":
		p.readValues(&d.CustomFields)
	case "metadata":
		p.readValues(&d.Metadata)
	case "ip":
		p.readText(&d.IP)
	case "userAgent":
		p.readText(&d.UserAgent)
	case "visitorId":
		p.readText(&d.VisitorID)
	case "changed":
		p.readList(&d.Changed)
	default:
		p.bad = true
	}
}
