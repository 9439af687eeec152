package contact

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// exports are the columns of exports, as their programs name them, with the fields of those that have one.
var exports = map[string]string{
	"Meta lead ads": "id\tcreated_time=receivedAt\tad_id=metadata.ad_id\tad_name=metadata.ad_name\tadset_id=metadata.adset_id\t" +
		"adset_name=metadata.adset_name\tcampaign_id=metadata.campaign_id\tcampaign_name=metadata.campaign_name\tform_id=metadata.form_id\t" +
		"form_name=metadata.form_name\tis_organic=metadata.is_organic\tplatform=metadata.platform\tfull_name=name\tphone_number=phone\t" +
		"work_email=email\twork_phone_number=phone\tcity\tinbox_url\tlead_status=status",
	"Meta leads center": "Created=receivedAt\tName=name\tEmail " +
		"address=email\tSource=metadata.source\tForm=metadata.form_name\tChannel\tStage=status\t" +
		"Owner=notLead\tLabels\tPhone number (recommended)=phone\tSecondary phone number=otherPhone",
	"Google lead form": "Lead ID\tUser column data\tFull name=name\tFirst name=firstName\tLast name=lastName\tUser " +
		"email=email\tWork email=email\t" +
		"Phone number=phone\tWork phone=phone\tCity\tPostal " +
		"code\tCountry=country\tCampaign=metadata.campaign_name\tCampaign ID=metadata.campaign_id\t" +
		"Ad group=metadata.adgroup_name\tAd group ID=metadata.adgroup_id\tCreative ID=metadata.creative_id\tForm " +
		"ID=metadata.form_id\t" +
		"Google Click ID=metadata.gclid\tLead Submit Time=receivedAt",
	"LinkedIn lead gen": "Lead Created At=receivedAt\tCampaign ID=metadata.campaign_id\tCampaign " +
		"Name=metadata.campaign_name\t" +
		"Form Name=metadata.form_name\tCreative Name=metadata.creative_name\tFirst Name=firstName\tLast " +
		"Name=lastName\tEmail Address=email\t" +
		"Work email=email\tPhone Number=phone\tJob Title\tCompany Name=notPerson\tCountry/Region=country",
	"HubSpot": "Record ID\tFirst Name=firstName\tLast Name=lastName\tEmail=email\tPhone Number=phone\tMobile Phone " +
		"Number=mobile\t" +
		"Contact owner=notLead\tLead Status=status\tLifecycle Stage\tCreate Date=receivedAt\tOriginal " +
		"Source=metadata.source\t" +
		"Country/Region=country\tAssociated Company\tMarketing contact status\tLast Activity Date\tWork email=email",
	"Salesforce": "First Name=firstName\tLast Name=lastName\tTitle\tCompany / " +
		"Account\tPhone=phone\tMobile=mobile\tFax=notPerson\tEmail=email\t" +
		"Lead Source=metadata.source\tLead Status=status\tRating=leadTemperature\tLead Owner=notLead\tCreate " +
		"Date=receivedAt\tEmail Opt Out=optOut.email\t" +
		"Other Phone=otherPhone\tMailing Country=country",
	"Zoho": "Record Id\tLead Owner=notLead\tCompany\tFirst Name=firstName\tLast Name=lastName\tLead " +
		"Name=name\tEmail=email\tPhone=phone\t" +
		"Mobile=mobile\tLead Source=metadata.source\tLead Status=status\tIndustry\tAnnual Revenue\tSecondary " +
		"Email=otherEmail\tRating=leadTemperature\t" +
		"Created Time=receivedAt\tCountry=country\tSkype ID",
	"Pipedrive": "Person - Name=name\tPerson - First name=firstName\tPerson - Last name=lastName\tPerson - " +
		"Email=email\tPerson - Email - Work=email\t" +
		"Person - Phone=phone\tPerson - Phone - Mobile=mobile\tPerson - Phone - Home=phone\tPerson - " +
		"Organization=notPerson\tDeal - Value=opportunityValue\t" +
		"Deal - Stage=status\tDeal - Title\tDeal - Currency of Value",
	"Freshsales": "Id\tFirst name=firstName\tLast name=lastName\tEmails=email\tWork=phone\tMobile=mobile\tSales " +
		"account\tStatus=status\tSales owner=notLead\t" +
		"Lifecycle stage\tCreated at=receivedAt",
	"Mailchimp": "Email Address=email\tFirst Name=firstName\tLast Name=lastName\tAddress\tPhone " +
		"Number=phone\tBirthday\tMEMBER_RATING\t" +
		"OPTIN_TIME=receivedAt\tOPTIN_IP=metadata.ip\tCONFIRM_TIME=consent.email\tLATITUDE\tCC\tREGION\tLAST_CHANGED\tTAGS",
	"Google Contacts": "First Name=firstName\tMiddle Name\tLast Name=lastName\tPhonetic First Name\tNickname\tFile " +
		"As\tOrganization Name=notPerson\t" +
		"Organization Title\tBirthday\tNotes\tLabels\tE-mail 1 - Label\tE-mail 1 - Value=email\tE-mail 2 - " +
		"Label\tE-mail 2 - Value=otherEmail\t" +
		"Phone 1 - Label\tPhone 1 - Value=phone\tPhone 2 - Value=otherPhone\tAddress 1 - Country=country",
	"Google Contacts, until 2024": "Name=name\tGiven Name=firstName\tAdditional Name\tFamily Name=lastName\tYomi " +
		"Name\tGroup Membership\t" +
		"E-mail 1 - Type\tE-mail 1 - Value=email\tPhone 1 - Type\tPhone 1 - Value=phone\tPhone 2 - Type\tPhone 2 - " +
		"Value=otherPhone",
	"Outlook": "First Name=firstName\tMiddle Name\tLast Name=lastName\tTitle\tE-mail Address=email\tE-mail 2 " +
		"Address=otherEmail\t" +
		"E-mail 3 Address=otherEmail\tE-mail Type\tHome Phone=phone\tHome Phone 2=otherPhone\tBusiness " +
		"Phone=phone\tMobile Phone=mobile\tCar Phone=otherPhone\t" +
		"Other Phone=otherPhone\tPrimary Phone=phone\tPager=notPerson\tBusiness Fax=notPerson\tCompany Main " +
		"Phone=notPerson\t" +
		"Assistant's Phone=notPerson\tJob Title\tHome Country/Region=country\tSpouse\tNotes",
	"German Excel": "Anrede\tVorname=firstName\tNachname=lastName\tTelefon=phone\tHandy=mobile\tE-Mail=email\tE-Mail-Adresse=email\tStraße\tPLZ\tOrt\tLand=country",
	"French Excel": "Prénom=firstName\tNom=lastName\tTéléphone=phone\tPortable=mobile\tCourriel=email\tVille\tPays=country",
	"Spanish Excel": "Nombre=firstName\tApellidos=lastName\tTeléfono=phone\tMóvil=mobile\tCorreo " +
		"electrónico=email\tPaís=country",
	"Spanish form": "Marca temporal=receivedAt\tNombre=name\tCelular=mobile\tCorreo=email",
	"Portuguese": "Nome=firstName\tSobrenome=lastName\tTelefone=phone\tCelular=mobile\tE-mail=email\tEndereço " +
		"de e-mail=email",
	"Portuguese one": "Nome=name\tTelemóvel=mobile",
	"Italian":        "Nome=firstName\tCognome=lastName\tTelefono=phone\tCellulare=mobile\tIndirizzo e-mail=email",
	"Dutch":          "Voornaam=firstName\tAchternaam=lastName\tTelefoonnummer=phone\tMobiel=mobile\tE-mailadres=email\tLand=country",
	"Hindi": "नाम=name\tफ़ोन=phone\tफोन नंबर=phone\tमोबाइल " +
		"नंबर=mobile\tईमेल=email",
	"register": "Name*=name\tMobile Number*=mobile\tEmail ID *=email\tPhone No (WhatsApp)=phone\tFull Name (as " +
		"per Aadhaar):=name\tCourse",
	"forms": "form_fields[email]=email\tfields[name][value]=name\tfields[email][raw_value]=email\tq3_email=email\tq5_name[first]=firstName\t" +
		"q5_name[last]=lastName\tq4_phoneNumber[full]=phone\tyour-phone=phone\tyour-name=name\t0-1/email=email\tmobile_number=mobile\tfirstName=firstName\t" +
		"What is your email address?=email\tEnter your phone number=phone\tbilling_phone=phone\tPhone " +
		"[required]=phone\tcontact.email=email\t" +
		"wpforms[fields][1]\tq9_phoneNumber[area]=phone\tyour-message\tfield_4",
	"calls":  "caller=phone\tCallFrom=phone\tCallTo=notLead\tcalled=notLead\tagent_number=notLead\tvirtual_number=notLead",
	"school": "student_phone=phone\tstudent_email=email\tparent_phone=otherPhone\tmother_email=otherEmail",
	"nested": "assigned_to[email]=notLead\tdata[owner][name]=notLead\towner[city]=notLead\tfax[number]=notPerson\torder[email]=email\t" +
		"contact[email]=email\tto[0][email]=notLead\tfields[agent][value]=notLead",
	"bookings": "payload[organizer][email]=notLead\tpayload[organizer][name]=notLead\thosts[0][phone]=notLead\t" +
		"payload[attendees][0][email]=email\tpayload[responses][email][email_address]=email\torganizer_email=notLead\t" +
		"destinationCalendar[primaryEmail]=notLead\tGastgeber[email]=notLead\tOrganisateur[email]=notLead",
	"handlers": "owner_id[email]=notLead\tuser_id[name]=notLead\tcreator_user_id[email]=notLead\tcreator[first_name]=notLead\t" +
		"assigned_user[email]=notLead\tresponsible_user_id[phone]=notLead\tperson_id[email][0][work]=email\t" +
		"User ID=notLead\tuser[id]=notLead\tuser_email=email\tuser[phone]=phone",
	"handlers and numbers": "recipient=notLead\tadmin_email=notLead\torder_number=notLead\taadhaar=notLead\tGST No.=notLead\t" +
		"referrer_email=notLead\tKundennummer=notLead\tRef\tStore",
}

func TestFieldsOf_Exports(t *testing.T) {
	t.Parallel()
	for export, columns := range exports {
		var names []string
		var want []Field
		for column := range strings.SplitSeq(columns, "\t") {
			name, field, _ := strings.Cut(column, "=")
			names, want = append(names, name), append(want, Field(field))
		}
		for i, field := range FieldsOf(names) {
			require.Equal(t, want[i], field, "%s: %s", export, names[i])
		}
	}
}

func TestFieldOf_OtherNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", " ", "()", "[]", "[", "Company", "Deal name", "Event name", "Product name", "Nickname", "Middle Name",
		"Phonetic First Name", "Message", "Budget", "Date of birth", "Date", "Id", "Record ID", "Email Opt Out Reason",
		"email_verified", "Phone type", "Number of employees", "Postal code", "q", "1", "01",
		"Please write what your phone number is and when we may call you", strings.Repeat("phone", 100),
	} {
		field, known := FieldOf(name)
		require.False(t, known, "%q: %s", name, field)
	}
	for name, want := range map[string]Field{
		"PHONE": FieldPhone, "(phone)": FieldPhone, "Nom": FieldName, "User name": FieldNotPerson,
		"Email (2)": FieldEmail, "Email 2": FieldOtherEmail, "Phone 1": FieldPhone, "mobile_3": FieldOtherPhone,
		"Unsubscribed from all email": "optOut.email", "Accepts Email Marketing": "consent.email", "Opt-In": "consent.marketing",
		"I agree": FieldConsent, "Your marketing consent": "consent.marketing", "DSGVO": "consent.privacy",
		"Te\u0301le\u0301phone": FieldPhone, "utm_source": "metadata.utm_source",
	} {
		field, known := FieldOf(name)
		require.True(t, known, name)
		require.Equal(t, want, field, name)
	}
}

func TestField_Consent(t *testing.T) {
	t.Parallel()
	for field, want := range map[Field]string{
		FieldConsent: " false true", "consent.email": "email false true", "optOut.email": "email true true",
		FieldEmail: " false false", "": " false false", "consentx": " false false",
	} {
		purpose, optOut, is := field.Consent()
		require.Equal(t, want, fmt.Sprint(purpose, " ", optOut, " ", is), field)
	}
}

func TestGranted_Values(t *testing.T) {
	t.Parallel()
	for _, yes := range []string{"yes", "TRUE", "1", " granted ", "Ja", "sí", "हाँ", "✓", "SUBSCRIBED", "Opted-in"} {
		granted, known := Granted(yes)
		require.True(t, granted && known, yes)
	}
	for _, no := range []string{"No", "false", "0", "nein", "Não", "नहीं", "UNSUBSCRIBED", "never_subscribed", "✗"} {
		granted, known := Granted(no)
		require.True(t, !granted && known, no)
	}
	for _, other := range []string{"", "maybe", "2", "yes but", "2026-09-12"} {
		_, known := Granted(other)
		require.False(t, known, other)
	}
}

func TestFieldOf_IgnoresSpelling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"phone number", "e-mail address", "prénom", "mobile no", "lead status"}).
			Draw(t, "name")
		want, known := FieldOf(name)
		require.True(t, known)
		spelled := strings.NewReplacer(" ", rapid.SampledFrom([]string{"", " ", "_", "-", "  "}).Draw(t, "space")).
			Replace(name)
		if rapid.Bool().Draw(t, "capitals") {
			spelled = strings.ToUpper(spelled)
		}
		spelled += rapid.SampledFrom([]string{"", "*", " *", ":", " (required)", " (", "\ufeff"}).Draw(t, "after")
		got, _ := FieldOf(spelled)
		require.Equal(t, want, got, "%q", spelled)
	})
}

func TestParseDictionary_Wrong(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"phone\ten", "phone\ten\tphone, , tel", "phone\ten\ttel\nemail\ten\tTel."} {
		_, err := parseDictionary(table)
		require.Error(t, err, "%q", table)
	}
}

func FuzzFieldOf(f *testing.F) {
	f.Add("fields[name][value]")
	f.Add("Phone (home")
	f.Fuzz(func(t *testing.T, name string) {
		field, known := FieldOf(name)
		require.Equal(t, known, field != "")
		require.Equal(t, field, FieldsOf([]string{name})[0])
	})
}
