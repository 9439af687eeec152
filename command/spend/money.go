package spend

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	iso "golang.org/x/text/currency"

	"github.com/leadlog/leadlog/command/lead"
)

// ParseAmount reads an amount as package lead does, unless CheckCurrency refuses it.
func ParseAmount(written, currency string) (lead.Amount, error) {
	if err := CheckCurrency(written, currency); err != nil {
		return lead.Amount{}, err
	}
	return lead.ParseAmount(written)
}

// CheckCurrency refuses an amount with the code or sign of another currency than the account's. The error's text suits
// the caller.
func CheckCurrency(written, currency string) error {
	if mark := foreignMark(written, currency); mark != "" {
		return fmt.Errorf("is in %s, and the account's currency is %s", mark, currency)
	}
	return nil
}

// foreignMark returns the code or sign of another currency than one; empty if there is none.
func foreignMark(written, code string) string {
	own, err := iso.ParseISO(code)
	if err != nil { // the account is not provisioned
		return ""
	}
	signs := fmt.Sprint(iso.NarrowSymbol(own), iso.Symbol(own))
	for _, r := range written {
		if unicode.Is(unicode.Sc, r) && !strings.ContainsRune(signs, r) {
			return string(r)
		}
	}
	for _, word := range words.FindAllString(written, -1) {
		_, err := iso.ParseISO(word)
		isCode := len(word) == 3 && (err == nil || word == strings.ToUpper(word))
		if isCode && !strings.EqualFold(word, code) {
			return word
		}
	}
	return ""
}

var words = regexp.MustCompile(`[A-Za-z]+`)
