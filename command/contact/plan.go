package contact

import (
	"slices"
	"strings"
)

// A numbering plan can replace the form of numbers that their subscribers keep: the old and the new form are one
// number. This file has the plans for which the new form follows from the digits alone. Numbers are in E.164 form. No
// rule depends on the library's metadata, which change, because the stream of a claim is named by the fold of its
// number.

// FoldPhone returns the form of an E.164 number under which it is claimed and compared: the new form of one that a
// numbering plan has replaced, else the number itself. Claims on the log are named by the fold: a change of it would
// not find them again.
//
// Argentina is left out on purpose: +54 9 is a mobile, and the same digits without the 9 may be another subscriber's
// land line.
func FoldPhone(phone string) string {
	if len(phone) < len("+2416031234") {
		return phone
	}
	switch phone[1] {
	case '2':
		return foldAfrican(phone)
	case '5':
		return foldAmerican(phone)
	case '8':
		return foldVietnam(phone)
	}
	return phone
}

// PhoneForms returns all numbers that have the same fold as a number.
func PhoneForms(phone string) []string {
	fold := FoldPhone(phone)
	forms := []string{fold}
	for _, plan := range [...]struct{ now, before string }{
		{"+52", "+521"}, {"+5760", "+57"},
		{"+22901", "+229"}, {"+22501", "+225"}, {"+22505", "+225"}, {"+22507", "+225"}, {"+22521", "+225"},
		{"+22525", "+225"}, {"+22527", "+225"},
		{"+2410", "+241"}, {"+2411", "+241"}, {"+2416", "+241"}, {"+2417", "+241"}, {"+2411", "+2410"},
		{"+2416", "+2410"}, {"+2417", "+2410"},
	} {
		if national, ok := strings.CutPrefix(fold, plan.now); ok {
			forms = append(forms, plan.before+national)
		}
	}
	if strings.HasPrefix(fold, "+55") && len(fold) == len("+5511987654321") {
		forms = append(forms, fold[:5]+fold[6:])
	}
	for before, now := range vietnam {
		if subscriber, ok := strings.CutPrefix(fold, "+84"+now); ok {
			forms = append(forms, "+84"+before+subscriber)
		}
	}
	return slices.DeleteFunc(forms, func(form string) bool { return form != fold && FoldPhone(form) != fold })
}

// foldAmerican folds numbers of Mexico, Brazil and Colombia.
//
//   - Mexico: mobiles lost the 1 after the country code in August 2019 (IFT, Plan Técnico Fundamental de Numeración
//     of 2018). WhatsApp still sends it.
//   - Brazil: mobiles of eight digits got a 9 in front from 2012 to November 2016 (Anatel, Resolução 553/2010).
//     Those with 70, 77, 78 and 79 were radio numbers, which did not.
//   - Colombia: 60 precedes the area code of land lines since September 2021 (CRC, Resolución 5826 of 2019). Mobiles
//     did not change.
func foldAmerican(phone string) string {
	switch {
	case len(phone) == len("+5215512345678") && strings.HasPrefix(phone, "+521"):
		return "+52" + phone[4:]
	case len(phone) == len("+551187654321") && phone[2] == '5' && formerBrazilianMobile(phone[3:5], phone[5:]):
		return phone[:5] + "9" + phone[5:]
	case len(phone) == len("+5712345678") && phone[2] == '7' && strings.IndexByte("1245678", phone[3]) >= 0 &&
		phone[4] != '0':
		return "+5760" + phone[3:]
	}
	return phone
}

// formerBrazilianMobile reports whether a number of eight digits in an area was a mobile. Area codes have no 0, and
// land lines begin with 2 to 5.
func formerBrazilianMobile(area, number string) bool {
	switch number[:2] {
	case "70", "77", "78", "79":
		return false
	}
	return !strings.Contains(area, "0") && number[0] >= '6' && number[0] <= '9'
}

// foldAfrican folds numbers of Côte d'Ivoire, Benin and Gabon.
//
//   - Côte d'Ivoire: two digits for the operator precede the eight digits since 31 January 2021 (ARTCI, plan national
//     de numérotation of 2020).
//   - Benin: 01 precedes the eight digits since 30 November 2024 (ARCEP Bénin). Services with 8 in front kept theirs.
//   - Gabon: a digit for the operator replaces the 0 of eight digits since November 2019 (ARCEP Gabon, plan national
//     de numérotation of 2019). From abroad the 0 could be left out.
func foldAfrican(phone string) string {
	switch {
	case len(phone) == len("+22507123456") && strings.HasPrefix(phone, "+225"):
		return "+225" + ivorianOperator(phone[4:]) + phone[4:]
	case len(phone) == len("+22997123456") && strings.HasPrefix(phone, "+229") && phone[4] >= '2' && phone[4] != '8':
		return "+22901" + phone[4:]
	case len(phone) == len("+24106031234") && strings.HasPrefix(phone, "+2410") && phone[5] >= '1' && phone[5] <= '7':
		return "+241" + gabonese[phone[5]-'1':phone[5]-'0'] + phone[5:]
	case len(phone) == len("+2416031234") && strings.HasPrefix(phone, "+241") && phone[4] >= '1' && phone[4] <= '7':
		return "+241" + gabonese[phone[4]-'1':phone[4]-'0'] + phone[4:]
	}
	return phone
}

// gabonese are the digits that precede 1 to 7. That of 3, whose operator had left, did not change.
const gabonese = "1607667"

// ivorianOperator returns the digits that precede a number of eight digits: 01 and 21 are Moov's, 05 and 25 MTN's, 07
// and 27 Orange's. The second digit tells the operator of a mobile, the third that of a land line, which begins with 2
// or 3. It is empty for other numbers.
func ivorianOperator(number string) string {
	switch number[0] {
	case '2', '3':
		switch {
		case number[1] > '6' || number[2] == '1':
		case number[2] == '0':
			return "25"
		case number[0] == '2' && number[1] <= '3' && number[2] == '8':
			return "21"
		default:
			return "27"
		}
	case '0', '4', '5', '6', '7', '8', '9':
		switch number[1] {
		case '0', '1', '2', '3':
			if strings.IndexByte("0457", number[0]) >= 0 && number[:2] != "00" {
				return "01"
			}
		case '4', '5', '6':
			return "05"
		default:
			return "07"
		}
	}
	return ""
}

// vietnam has the new beginnings of mobile numbers, which lost a digit from September 2018 on (Ministry of Information
// and Communications, plan of 2018), by the old ones, both without the trunk 0.
var vietnam = map[string]string{
	"120": "70", "121": "79", "122": "77", "126": "76", "128": "78", // MobiFone
	"123": "83", "124": "84", "125": "85", "127": "81", "129": "82", // VinaPhone
	"162": "32", "163": "33", "164": "34", "165": "35", "166": "36", "167": "37", "168": "38", "169": "39", // Viettel
	"186": "56", "188": "58", // Vietnamobile
	"199": "59", // Gmobile
}

func foldVietnam(phone string) string {
	if len(phone) == len("+841681234567") && strings.HasPrefix(phone, "+841") {
		if now := vietnam[phone[3:6]]; now != "" {
			return "+84" + now + phone[6:]
		}
	}
	return phone
}

// withoutMexicanPrefix removes what was dialled before the ten digits of a number in Mexico until August 2019: 01 for
// another area, 044 and 045 for a mobile.
func withoutMexicanPrefix(number string) string {
	for _, prefix := range [...]string{"01", "044", "045"} {
		if national, ok := strings.CutPrefix(number, prefix); ok && len(national) == 10 {
			return national
		}
	}
	return number
}
