package expression

import (
	"reflect"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// actual prices calls that CEL takes for cheap at evaluation and that are not: those of which the types are known at evaluation only,
// and those that put lists together.
type actual struct{}

// joined is the type of two lists put together. Such a list reads its parts at each access, and each of these its own.
var joined = func() reflect.Type {
	one := types.DefaultTypeAdapter.NativeToValue([]string{"a"})
	return reflect.TypeOf(one.(traits.Adder).Add(one))
}()

func (actual) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
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
