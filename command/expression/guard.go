package expression

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	celfunctions "cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
)

// CEL adds the cost of a call after the call. The cost of the calls in this file is a product of the sizes of their
// arguments, or that of a value which refers to one part many times, up to gigabytes and seconds. So it is computed
// before the call, and a call that alone exceeds the limit is refused.

// price is the cost of a call by its arguments. It may stop counting at most.
type price func(args []ref.Val, most uint64) uint64

// guards refuse calls that alone exceed the limit of an environment, and have all calls of their functions cost their
// price.
type guards struct {
	limit    uint64
	trackers []cost.TrackerOption
}

// prices have the costs of functions of ext.Strings.
var prices = map[string]price{
	"replace":     priceOfReplace,
	"join":        priceOfJoin,
	"format":      priceOfFormat,
	"indexOf":     priceOfSearch,
	"lastIndexOf": priceOfSearch,
}

// texts replaces the implementations of these functions.
func (g *guards) texts() cel.EnvOption {
	return func(env *cel.Env) (*cel.Env, error) {
		plain, err := cel.NewEnv(ext.Strings())
		if err != nil {
			return nil, err
		}
		for name, price := range prices {
			function := plain.Functions()[name]
			bindings, err := function.Bindings()
			if err != nil {
				return nil, err
			}
			for _, binding := range bindings {
				for _, of := range function.OverloadDecls() {
					if of.ID() != binding.Operator {
						continue
					}
					overload := cel.MemberOverload(of.ID(), of.ArgTypes(), of.ResultType(),
						g.guard(of.ID(), binding, price))
					if env, err = cel.Function(name, overload)(env); err != nil {
						return nil, err
					}
				}
			}
		}
		return env, nil
	}
}

// costly returns a value of its own each time: CEL writes into it where it came from.
func costly() ref.Val { return types.WrapErr(ErrCost) }

// guard returns an implementation that returns ErrCost for a call that would exceed the limit.
func (g *guards) guard(id string, of *celfunctions.Overload, price price) cel.OverloadOpt {
	g.trackers = append(g.trackers, cost.OverloadTracker(id, func(args []ref.Val, _ ref.Val) *uint64 {
		return new(price(args, g.limit))
	}))
	switch {
	case of.Unary != nil:
		return cel.UnaryBinding(func(arg ref.Val) ref.Val {
			if price([]ref.Val{arg}, g.limit) > g.limit {
				return costly()
			}
			return of.Unary(arg)
		})
	case of.Binary != nil:
		return cel.BinaryBinding(func(a, b ref.Val) ref.Val {
			if price([]ref.Val{a, b}, g.limit) > g.limit {
				return costly()
			}
			return of.Binary(a, b)
		})
	}
	return cel.FunctionBinding(func(args ...ref.Val) ref.Val {
		if price(args, g.limit) > g.limit {
			return costly()
		}
		return of.Function(args...)
	})
}

// comparisons guards ==, != and in, unless one of the values is a constant: then it is as small as the expression.
func (g *guards) comparisons() cel.ProgramOption {
	return cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, is := i.(interpreter.InterpretableCall)
		if !is {
			return i, nil
		}
		compare, price := comparison(call.Function())
		if compare == nil || slices.ContainsFunc(call.Args(), isConstant) {
			return i, nil
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(),
			call.Args(), func(args ...ref.Val) ref.Val {
				if price(args, g.limit) > g.limit {
					return costly()
				}
				return compare(args[0], args[1])
			}), nil
	})
}

func isConstant(of interpreter.InterpretableV2) bool {
	_, is := of.(interpreter.InterpretableConst)
	return is
}

// comparison returns the implementation and the price of an operator; nil if it does not compare.
func comparison(operator string) (compare func(a, b ref.Val) ref.Val, _ price) {
	switch operator {
	case operators.Equals:
		return types.Equal, priceOfEqual
	case operators.NotEquals:
		return func(a, b ref.Val) ref.Val { return types.Bool(types.Equal(a, b) != types.True) }, priceOfEqual
	case operators.In:
		return func(value, in ref.Val) ref.Val {
			if container, is := in.(traits.Container); is {
				return container.Contains(value)
			}
			return types.NoSuchOverloadErr()
		}, priceOfIn
	}
	return nil, nil
}

// priceOfEqual is the size of the smaller value. Parts are looked up in both.
func priceOfEqual(args []ref.Val, most uint64) uint64 {
	a, b := args[0], args[1]
	switch {
	case !hasParts(a) || !hasParts(b):
		return min(glance(a), glance(b))
	case members(a) != members(b):
		return 1
	}
	return 2 * weight(b, weight(a, most))
}

func priceOfIn(args []ref.Val, most uint64) uint64 {
	if _, is := args[1].(traits.Lister); !is {
		return 1
	}
	each := weight(args[0], most)
	if hasParts(args[0]) {
		each *= 2
	}
	return 1 + members(args[1])*each
}

func priceOfReplace(args []ref.Val, _ uint64) uint64 {
	text, old, latest := textOf(args[0]), textOf(args[1]), textOf(args[2])
	result := len(text)
	if longer := len(latest) - len(old); longer > 0 {
		result += longer * strings.Count(text, old)
	}
	return 1 + uint64(len(text))*uint64(max(1, len(old)))/10 + uint64(result)
}

func priceOfJoin(args []ref.Val, most uint64) uint64 {
	separator := 0
	if len(args) > 1 {
		separator = len(textOf(args[1]))
	}
	return textSize(args[0], most) + size(args[0])*uint64(separator)
}

func priceOfFormat(args []ref.Val, most uint64) uint64 {
	return uint64(len(textOf(args[0]))) + textSize(args[1], most)
}

func priceOfSearch(args []ref.Val, _ uint64) uint64 {
	return 1 + uint64(len(textOf(args[0])))*uint64(len(textOf(args[1])))/10
}

func textOf(v ref.Val) string {
	text, _ := v.(types.String)
	return string(text)
}

// textSize is about how long a value is as text, and at least the number of its parts. It stops counting beyond most.
func textSize(v ref.Val, most uint64) uint64 {
	return sum(v, most, func(v ref.Val) uint64 {
		if text, is := v.(types.String); is {
			return 1 + uint64(len(text))
		}
		return 8
	})
}

// weight is the cost of looking at all parts of a value. It stops counting beyond most.
func weight(v ref.Val, most uint64) uint64 { return sum(v, most, glance) }

// glance is the cost of looking at a value without its parts. A text may be blank up to its end.
func glance(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return 1 + uint64(len(v))/10
	case types.Bytes:
		return 1 + uint64(len(v))/10
	}
	return 1
}

// sum adds up what a value and its parts count. It stops beyond most: a value may refer to itself many times.
func sum(v ref.Val, most uint64, count func(ref.Val) uint64) uint64 {
	total := count(v)
	switch v := v.(type) {
	case *types.Optional:
		if v.HasValue() {
			total += sum(v.GetValue(), most, count)
		}
	case traits.Mapper:
		for it := v.Iterator(); total <= most && it.HasNext() == types.True; {
			key := it.Next()
			total += count(key) + sum(v.Get(key), most-min(total, most), count)
		}
	case traits.Lister:
		for it := v.Iterator(); total <= most && it.HasNext() == types.True; {
			total += sum(it.Next(), most-min(total, most), count)
		}
	}
	return total
}

var errPattern = errors.New("must have constant regular expressions in matches")

// regexps has the sizes of an expression's regular expressions, in instructions.
type regexps map[string]uint64

// regexpsOf returns the regular expressions of an expression. The error is errPattern.
func regexpsOf(checked *cel.Ast) (found regexps, err error) {
	found = regexps{}
	ast.PostOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != overloads.Matches {
			return
		}
		args := e.AsCall().Args()
		pattern := args[len(args)-1]
		text, is := types.String(""), false
		if pattern.Kind() == ast.LiteralKind {
			text, is = pattern.AsLiteral().(types.String)
		}
		if !is {
			err = errPattern
			return
		}
		size, _ := types.RegexProgramSize(string(text)) // an invalid expression does not compile later
		found[string(text)] = uint64(size)
	}))
	return found, err
}

// price is that of a match: its time grows with both sizes.
func (r regexps) price(text, pattern string) uint64 {
	return 1 + uint64(len(text))*r[pattern]/4
}

// guarded compiles the regular expressions, and lets a match return ErrCost instead of costing more than a limit.
func (r regexps) guarded(limit uint64) cel.ProgramOption {
	compile := func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(),
			call.Args(), func(args ...ref.Val) ref.Val {
				text, is := args[0].(types.String)
				switch {
				case !is:
					return types.NoSuchOverloadErr()
				case r.price(string(text), pattern) > limit:
					return costly()
				}
				return types.Bool(compiled.MatchString(string(text)))
			}), nil
	}
	var all []*interpreter.RegexOptimization
	for _, overload := range []string{overloads.Matches, overloads.MatchesString} { // takes precedence over CEL's own
		all = append(all, &interpreter.RegexOptimization{
			Function: overloads.Matches, OverloadID: overload, RegexIndex: 1, Factory: compile,
		})
	}
	return cel.OptimizeRegex(all...)
}
