package expression

import (
	"reflect"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// actual computes the cost of calls that CEL underestimates at evaluation: comparisons, calls whose types are known
// only at evaluation, concatenations of lists, insertions into maps, and regular expressions.
type actual struct {
	regexps regexps
	limit   uint64
}

// insert is what transformMap and transformMapEntry call for each member. CEL lists the keys of the map before it
// inserts.
const insert = "cel.@mapInsert"

// joined is the type of two lists put together. Such a list reads its parts at each access, and each of these its own.
var joined = func() reflect.Type {
	one := types.DefaultTypeAdapter.NativeToValue([]string{"a"})
	return reflect.TypeOf(one.(traits.Adder).Add(one))
}()

func (a actual) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if _, price := comparison(function); price != nil && len(args) == 2 {
		return new(price(args, a.limit))
	}
	switch {
	case function == overloads.Matches && len(args) == 2:
		return new(a.regexps.price(textOf(args[0]), textOf(args[1])))
	case function == insert:
		return new(1 + members(args[0])/2)
	}
	if list, ok := result.(traits.Lister); ok && function == operators.Add {
		n := size(list)
		cost := 1 + n/10
		for _, arg := range args {
			if reflect.TypeOf(arg) == joined {
				cost = 1 + n*n/20
			}
		}
		return &cost
	}
	if overload != "" {
		return nil
	}
	cost := uint64(1)
	for _, arg := range args {
		cost += size(arg) / 10
	}
	return &cost
}

// hasParts reports whether a value is a list, an object or an optional.
func hasParts(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return true
	}
	return false
}

// members is how many members a list or an object has; 0 for all other values.
func members(v ref.Val) uint64 {
	switch v := v.(type) {
	case traits.Lister:
		return length(v)
	case traits.Mapper:
		return length(v)
	}
	return 0
}

func length(v traits.Sizer) uint64 {
	n, _ := v.Size().(types.Int)
	return uint64(n)
}

// size is the length of a text or list; 0 for all other values.
func size(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	case traits.Lister:
		return length(v)
	}
	return 0
}
