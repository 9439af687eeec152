package expression

import (
	"reflect"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// actual computes the cost of calls that CEL underestimates at evaluation: calls whose types are known only at evaluation,
// concatenations of lists, and regular expressions.
type actual struct{ regexps regexps }

// joined is the type of two lists put together. Such a list reads its parts at each access, and each of these its own.
var joined = func() reflect.Type {
	one := types.DefaultTypeAdapter.NativeToValue([]string{"a"})
	return reflect.TypeOf(one.(traits.Adder).Add(one))
}()

func (a actual) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if function == overloads.Matches && len(args) == 2 {
		cost := a.regexps.price(textOf(args[0]), textOf(args[1]))
		return &cost
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
	if function == operators.In && len(args) == 2 {
		cost += size(args[1])
	}
	return &cost
}

// size is the length of a text or list; 0 for all other values.
func size(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	case traits.Lister:
		if n, ok := v.Size().(types.Int); ok {
			return uint64(n)
		}
	}
	return 0
}
