package expression

import (
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
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
func functions() cel.EnvOption {
	names := cel.ListType(cel.StringType)
	return cel.Lib(library{[]cel.EnvOption{
		cel.Function("pick", cel.Overload("pick_dyn_list", []*cel.Type{cel.DynType, names}, cel.DynType, cel.BinaryBinding(pick))),
		cel.Function("first", cel.Overload("first_list", []*cel.Type{cel.ListType(cel.DynType)}, cel.DynType, cel.UnaryBinding(first))),
		cel.Function("only", cel.Overload("only_dyn_list", []*cel.Type{cel.DynType, names}, Object.cel, cel.BinaryBinding(only))),
		cel.Function("omit", cel.Overload("omit_dyn_list", []*cel.Type{cel.DynType, names}, Object.cel, cel.BinaryBinding(omit))),
		cel.Function("merge", cel.Overload("merge_list", []*cel.Type{cel.ListType(cel.DynType)}, Object.cel, cel.UnaryBinding(merge))),
		cel.Function("pairs", cel.Overload("pairs_dyn_string_string", []*cel.Type{cel.DynType, cel.StringType, cel.StringType}, Object.cel,
			cel.FunctionBinding(func(args ...ref.Val) ref.Val { return pairs(args[0], args[1], args[2]) }))),
		cel.Function("words", cel.Overload("words_list", []*cel.Type{cel.ListType(cel.DynType)}, cel.StringType, cel.UnaryBinding(words))),
		cel.Function("minor", cel.Overload("minor_dyn_string", []*cel.Type{cel.DynType, cel.StringType}, cel.StringType, cel.BinaryBinding(minor))),
		cel.CostModel(
			model("pick_dyn_list", cost.Length(cost.Arg(1)), anyResult()),
			model("first_list", cost.Length(cost.Arg(0)), anyResult()),
			model("only_dyn_list", members(0), objectResult()),
			model("omit_dyn_list", members(0), objectResult()),
			model("merge_list", cost.Sum(cost.Length(cost.Arg(0)), cost.Length(cost.Result())), objectResult()),
			model("pairs_dyn_string_string", members(0), objectResult()),
			model("words_list", cost.Sum(cost.Length(cost.Arg(0)), cost.StringScan(cost.Length(cost.Result()))), cost.AtMost(cost.Const(assumedText))),
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

// members is the cost of looking at every element of an argument once.
func members(arg int) cost.QuantityExpr { return cost.Scale(cost.Length(cost.Arg(arg)), 0.5) }

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

func first(values ref.Val) ref.Val {
	for it := values.(traits.Lister).Iterator(); it.HasNext() == types.True; {
		if value := plain(it.Next()); !empty(value) {
			return value
		}
	}
	return types.NullValue
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
		if ok && listed == slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(string(name), prefix) }) {
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

// maxName is the longest name of a member that pairs makes, in characters.
const maxName = 50

func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	runes := []rune(name)
	return string(runes[:min(len(runes), maxName)])
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

// exponent returns how many decimals ISO 4217 gives a currency. It is 2 for all that are not listed. CLDR's table, which
// golang.org/x/text/currency has, is another: it shows rupiahs without the decimals that amounts in minor units do have.
func exponent(code string) (decimals int, ok bool) {
	if len(code) != 3 || strings.Trim(strings.ToUpper(code), "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return 0, false
	}
	switch strings.ToUpper(code) {
	case "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF":
		return 0, true
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		return 3, true
	case "CLF", "UYW":
		return 4, true
	}
	return 2, true
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
