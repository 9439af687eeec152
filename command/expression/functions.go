package expression

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	celfunctions "cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/leadlog/leadlog/command/contact"
)

// functions are the functions that this package adds to CEL. They treat a missing member as an empty one.
//
//	pick(object, ["a", "b"])       the first of these members that is not empty, else null; of a list, its first element that is not
//	first([a, b])                  the first of these values that is not empty, else null
//	only(object, ["a", "b*"])      an object of these members; a name that ends in * stands for all that begin with it
//	omit(object, ["a", "b*"])      an object of all other members
//	merge([object, object])        an object of the members of all; of two with one name, the later, unless it is empty
//	pairs(list, "key", "value")    an object made of a list of objects, each with the name and the value of a member; names are cut
//	                               to 50 characters, the most that a custom field may have
//	words([text, text])            the texts that are not empty, with a space between them
//	minor(amount, "INR")           an amount in a currency's smallest unit, as a decimal text: minor(1250, "INR") is "12.50"
//	json(text)                     the value that a text is the JSON of, else an error; null of an empty text
//	form(text)                     an object of the fields of a query string, else an error; a repeated one is a list
//	digits(text)                   the digits of a text or of a whole number, those of other scripts as ASCII digits
func (g *guards) functions() cel.EnvOption {
	names, list, anything := cel.ListType(cel.StringType), cel.ListType(cel.DynType), cel.DynType
	unary := func(id string, arg, result *cel.Type, of func(ref.Val) ref.Val, price price) cel.FunctionOpt {
		return cel.Overload(id, []*cel.Type{arg}, result, g.guard(id, &celfunctions.Overload{Unary: of}, price))
	}
	binary := func(id string, second, result *cel.Type, of func(a, b ref.Val) ref.Val, price price) cel.FunctionOpt {
		return cel.Overload(id, []*cel.Type{anything, second}, result,
			g.guard(id, &celfunctions.Overload{Binary: of}, price))
	}
	ofPairs := &celfunctions.Overload{
		Function: func(args ...ref.Val) ref.Val { return pairs(args[0], args[1], args[2]) },
	}
	return cel.Lib(library{[]cel.EnvOption{
		cel.Function("pick", binary("pick_dyn_list", names, anything, pick, priceOfPick)),
		cel.Function("first", unary("first_list", list, anything, first, priceOfFirst)),
		cel.Function("only", binary("only_dyn_list", names, Object.cel, only, priceOfChoice)),
		cel.Function("omit", binary("omit_dyn_list", names, Object.cel, omit, priceOfChoice)),
		cel.Function("merge", unary("merge_list", list, Object.cel, merge, priceOfMerge)),
		cel.Function("pairs",
			cel.Overload("pairs_dyn_string_string", []*cel.Type{anything, cel.StringType, cel.StringType}, Object.cel,
				g.guard("pairs_dyn_string_string", ofPairs, priceOfPairs))),
		cel.Function("words", unary("words_list", list, cel.StringType, words, priceOfWords)),
		cel.Function("minor", binary("minor_dyn_string", cel.StringType, cel.StringType, minor, priceOfMinor)),
		cel.Function("json", unary("json_dyn", anything, anything, parseText, priceOfParse)),
		cel.Function("form", unary("form_dyn", anything, Object.cel, parseForm, priceOfParse)),
		cel.Function("digits", unary("digits_dyn", anything, cel.StringType, digits, priceOfMinor)),
		cel.CostModel(
			model("json_dyn", cost.Scale(cost.Length(cost.Arg(0)), 0.5), anyResult()),
			model("form_dyn", cost.Scale(cost.Length(cost.Arg(0)), 0.5), objectResult()),
			model("digits_dyn", cost.StringScan(cost.Length(cost.Arg(0))), cost.AtMost(cost.Const(assumedText))),
			model("pick_dyn_list", cost.Length(cost.Arg(1)), anyResult()),
			model("first_list", cost.Length(cost.Arg(0)), anyResult()),
			model("only_dyn_list", choice, objectResult()),
			model("omit_dyn_list", choice, objectResult()),
			model("merge_list", cost.Sum(cost.Length(cost.Arg(0)), cost.Scale(cost.Length(cost.Result()), 2)),
				objectResult()),
			model("pairs_dyn_string_string", cost.Scale(cost.Length(cost.Arg(0)), 0.5), objectResult()),
			model("words_list", cost.Sum(cost.Length(cost.Arg(0)), cost.StringScan(cost.Length(cost.Result()))),
				cost.AtMost(cost.Const(assumedText))),
			model("minor_dyn_string", cost.Const(1), cost.AtMost(cost.Const(assumedText))),
		),
	}})
}

type library struct{ options []cel.EnvOption }

func (l library) CompileOptions() []cel.EnvOption     { return l.options }
func (l library) ProgramOptions() []cel.ProgramOption { return nil }

func model(overload string, work, result cost.QuantityExpr) cost.OverloadModel {
	return cost.Overload(overload, cost.EvalCost(cost.Sum(cost.Const(1), work)), cost.ResultSize(result))
}

// choice is the cost of only and omit: each member is copied, and compared with each name.
var choice = cost.Sum(cost.Scale(cost.Length(cost.Arg(0)), 2), cost.Length(cost.Arg(1)),
	cost.Scale(cost.Mul(cost.Length(cost.Arg(0)), cost.Length(cost.Arg(1))), 0.1))

func anyResult() cost.QuantityExpr {
	return cost.List(cost.AtMost(cost.Const(assumedElements)), cost.AtMost(cost.Const(assumedText)))
}

func objectResult() cost.QuantityExpr {
	text := cost.AtMost(cost.Const(assumedText))
	return cost.Map(cost.AtMost(cost.Const(assumedElements)), text, text)
}

func pick(object, names ref.Val) ref.Val {
	from, ok := plain(object).(traits.Mapper)
	if !ok {
		return types.NullValue
	}
	for it := names.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		value, found := from.Find(it.Next())
		if !found || empty(value) {
			continue
		}
		list, ok := value.(traits.Lister)
		if !ok {
			return value
		}
		one := first(list)
		switch one.(type) {
		case types.String: // a field that a form repeats
			return one
		case types.Null:
		default:
			return value
		}
	}
	return types.NullValue
}

// priceOfPick is the cost of looking at values until one is not empty.
func priceOfPick(args []ref.Val, most uint64) uint64 {
	names, total := args[1].(traits.Lister), 1+members(args[1])
	from, ok := plain(args[0]).(traits.Mapper)
	if !ok {
		return total
	}
	for it := names.Iterator(); total <= most && it.HasNext() == types.True; {
		value, found := from.Find(it.Next())
		if !found {
			continue
		}
		total += glance(value)
		if list, is := value.(traits.Lister); is {
			total += priceOfFirst([]ref.Val{list}, most)
		} else if !empty(value) {
			break
		}
	}
	return total
}

func first(values ref.Val) ref.Val {
	for it := values.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		if value := plain(it.Next()); !empty(value) {
			return value
		}
	}
	return types.NullValue
}

func priceOfFirst(args []ref.Val, most uint64) uint64 {
	total := uint64(1)
	for it := args[0].(traits.Lister).Iterator(); total <= most && it.HasNext() == types.True; {
		value := plain(it.Next())
		if total += glance(value); !empty(value) {
			break
		}
	}
	return total
}

func only(object, names ref.Val) ref.Val { return choose(object, names, true) }
func omit(object, names ref.Val) ref.Val { return choose(object, names, false) }

func choose(object, names ref.Val, listed bool) ref.Val {
	from, ok := plain(object).(traits.Mapper)
	chosen := make(map[ref.Val]ref.Val)
	if !ok {
		return asObject(chosen)
	}
	list := names.(traits.Lister)
	exact, prefixes := make([]ref.Val, 0, size(list)), []string(nil)
	for it := list.Iterator(); it.HasNext() == types.True; {
		value := it.Next()
		name, ok := value.(types.String)
		if !ok {
			return types.NoSuchOverloadErr()
		}
		if prefix, wild := strings.CutSuffix(string(name), "*"); wild {
			prefixes = append(prefixes, prefix)
		} else {
			exact = append(exact, value)
		}
	}
	for it := from.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if ok && listed == slices.ContainsFunc(prefixes, func(prefix string) bool {
			return strings.HasPrefix(string(name), prefix)
		}) {
			chosen[key] = from.Get(key)
		}
	}
	for _, name := range exact {
		if !listed {
			delete(chosen, name)
		} else if value, found := from.Find(name); found {
			chosen[name] = value
		}
	}
	return asObject(chosen)
}

// priceOfChoice is choice of the actual members.
func priceOfChoice(args []ref.Val, _ uint64) uint64 {
	of, names := members(plain(args[0])), members(args[1])
	return 1 + 2*of + names + of*names/10
}

func merge(objects ref.Val) ref.Val {
	merged := make(map[ref.Val]ref.Val)
	for it := objects.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		one := plain(it.Next())
		if empty(one) {
			continue
		}
		from, ok := one.(traits.Mapper)
		if !ok {
			return types.NoSuchOverloadErr()
		}
		for each := from.Iterator(); each.HasNext() == types.True; {
			key := each.Next()
			if value := plain(from.Get(key)); !empty(value) {
				merged[key] = value
			}
		}
	}
	return asObject(merged)
}

func priceOfMerge(args []ref.Val, most uint64) uint64 {
	total := uint64(1)
	for it := args[0].(traits.Lister).Iterator(); total <= most && it.HasNext() == types.True; {
		one := plain(it.Next())
		total += glance(one)
		from, ok := one.(traits.Mapper)
		if !ok {
			continue
		}
		for each := from.Iterator(); total <= most && each.HasNext() == types.True; {
			total += 1 + glance(plain(from.Get(each.Next())))
		}
	}
	return total
}

func pairs(list, key, value ref.Val) ref.Val {
	made := make(map[ref.Val]ref.Val)
	from, ok := plain(list).(traits.Lister)
	if !ok {
		return asObject(made)
	}
	for it := from.Iterator(); it.HasNext() == types.True; {
		one, ok := plain(it.Next()).(traits.Mapper)
		if !ok {
			continue
		}
		name, _ := one.Find(key)
		given, found := one.Find(value)
		if !found || empty(plain(given)) {
			continue
		}
		full, ok := plain(name).(types.String)
		if !ok {
			continue
		}
		cut := types.String(shorten(string(full)))
		if _, taken := made[cut]; taken {
			cut = full
		}
		if _, taken := made[cut]; !taken {
			made[cut] = plain(given)
		}
	}
	return asObject(made)
}

func priceOfPairs(args []ref.Val, most uint64) uint64 {
	total := uint64(1)
	from, ok := plain(args[0]).(traits.Lister)
	if !ok {
		return total
	}
	for it := from.Iterator(); total <= most && it.HasNext() == types.True; {
		total += 3
		if one, is := plain(it.Next()).(traits.Mapper); is {
			if value, found := one.Find(args[2]); found {
				total += glance(plain(value))
			}
		}
	}
	return total
}

// maxName is the longest name of a member that pairs makes, in characters.
const maxName = 50

func shorten(name string) string {
	runes := 0
	for i := range name {
		if runes++; runes > maxName {
			return name[:i]
		}
	}
	return name
}

func words(texts ref.Val) ref.Val {
	var all []string
	for it := texts.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		switch one := plain(it.Next()).(type) {
		case types.String:
			if text := strings.TrimSpace(string(one)); text != "" {
				all = append(all, text)
			}
		case types.Null:
		default:
			return types.NoSuchOverloadErr()
		}
	}
	return types.String(strings.Join(all, " "))
}

func priceOfWords(args []ref.Val, most uint64) uint64 {
	total := uint64(1)
	for it := args[0].(traits.Lister).Iterator(); total <= most && it.HasNext() == types.True; {
		total += glance(plain(it.Next()))
	}
	return total
}

func priceOfMinor(args []ref.Val, _ uint64) uint64 { return glance(plain(args[0])) }

// minor has as many decimals as ISO 4217 says the currency has.
func minor(amount, code ref.Val) ref.Val {
	var units int64
	switch a := plain(amount).(type) {
	case types.Int:
		units = int64(a)
	case types.String:
		parsed, err := strconv.ParseInt(strings.TrimSpace(string(a)), 10, 64)
		if err != nil {
			return types.NewErrFromString("not a whole number")
		}
		units = parsed
	case types.Null:
		return types.String("")
	default:
		return types.NoSuchOverloadErr()
	}
	decimals, ok := exponent(string(code.(types.String)))
	if !ok {
		return types.NewErrFromString("not a currency")
	}
	digits := strconv.FormatInt(units, 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	if len(digits) <= decimals {
		digits = strings.Repeat("0", decimals+1-len(digits)) + digits
	}
	if decimals == 0 {
		return types.String(sign + digits)
	}
	point := len(digits) - decimals
	return types.String(sign + digits[:point] + "." + digits[point:])
}

// exponent returns how many decimals ISO 4217 gives a currency. It is 2 for all that are not listed. CLDR's table,
// which golang.org/x/text/currency has, is another: it shows rupiahs without the decimals that amounts in minor units
// do have.
func exponent(code string) (decimals int, ok bool) {
	if len(code) != 3 || strings.Trim(strings.ToUpper(code), "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return 0, false
	}
	switch strings.ToUpper(code) {
	case "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI",
		"VND", "VUV", "XAF", "XOF", "XPF":
		return 0, true
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		return 3, true
	case "CLF", "UYW":
		return 4, true
	}
	return 2, true
}

func parseText(text ref.Val) ref.Val {
	given, ok := textGiven(text)
	switch {
	case !ok:
		return types.NoSuchOverloadErr()
	case given == "":
		return types.NullValue
	}
	parsed, err := Parse([]byte(given))
	if err != nil {
		return types.WrapErr(errNotJSON)
	}
	return types.DefaultTypeAdapter.NativeToValue(parsed)
}

func parseForm(text ref.Val) ref.Val {
	given, ok := textGiven(text)
	if !ok {
		return types.NoSuchOverloadErr()
	}
	query, err := url.ParseQuery(strings.TrimPrefix(given, "?"))
	if err != nil {
		return types.WrapErr(errNotForm)
	}
	fields := make(map[string]any, len(query))
	for name, values := range query {
		list := make([]any, len(values))
		for i, value := range values {
			list[i] = strings.ToValidUTF8(value, "\uFFFD")
		}
		if name = strings.ToValidUTF8(name, "\uFFFD"); len(list) == 1 {
			fields[name] = list[0]
		} else {
			fields[name] = list
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(fields)
}

// textGiven returns a text without the space around it; empty for null. Ok is false for any other value.
func textGiven(v ref.Val) (text string, ok bool) {
	switch v := plain(v).(type) {
	case types.String:
		return strings.TrimSpace(string(v)), true
	case types.Null:
		return "", true
	}
	return "", false
}

// priceOfParse is the cost of reading a text, in which every second character may be a value.
func priceOfParse(args []ref.Val, _ uint64) uint64 { return 1 + uint64(len(textOf(plain(args[0]))))/2 }

func digits(text ref.Val) ref.Val {
	switch v := plain(text).(type) {
	case types.String:
		return types.String(contact.Digits(string(v)))
	case types.Int:
		return types.String(contact.Digits(strconv.FormatInt(int64(v), 10)))
	case types.Null:
		return types.String("")
	}
	return types.NoSuchOverloadErr()
}

func asObject(members map[ref.Val]ref.Val) ref.Val {
	return types.NewRefValMap(types.DefaultTypeAdapter, members)
}

// plain returns the value in an optional one, and null if there is none.
func plain(v ref.Val) ref.Val {
	optional, ok := v.(*types.Optional)
	switch {
	case !ok:
		return v
	case !optional.HasValue():
		return types.NullValue
	}
	return optional.GetValue()
}

// empty reports whether a value counts as not given: null, a blank text, an empty list or object.
func empty(v ref.Val) bool {
	switch v := v.(type) {
	case types.Null:
		return true
	case types.String:
		return strings.TrimSpace(string(v)) == ""
	case traits.Lister:
		return v.Size() == types.IntZero
	case traits.Mapper:
		return v.Size() == types.IntZero
	}
	return false
}
