package expression

import (
	"errors"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	celfunctions "cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
)

// CEL adds the cost of a call after the call. The cost of the calls in this file is a product of the sizes of their arguments, up to
// gigabytes and seconds. So it is computed before the call, and a call that alone exceeds the limit is refused.

// prices have the costs of functions of ext.Strings by CEL's own formulas.
var prices = map[string]func(args []ref.Val) uint64{
	"replace":     priceOfReplace,
	"join":        priceOfJoin,
	"format":      priceOfFormat,
	"indexOf":     priceOfSearch,
	"lastIndexOf": priceOfSearch,
}

// guarded replaces the implementations of these functions. The new ones return ErrCost for a call that would exceed the limit.
func guarded(limit uint64) cel.EnvOption {
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
					overload := cel.MemberOverload(of.ID(), of.ArgTypes(), of.ResultType(), guard(binding, price, limit))
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

func guard(of *celfunctions.Overload, price func([]ref.Val) uint64, limit uint64) cel.OverloadOpt {
	switch {
	case of.Unary != nil:
		return cel.UnaryBinding(func(arg ref.Val) ref.Val {
			if price([]ref.Val{arg}) > limit {
				return costly()
			}
			return of.Unary(arg)
		})
	case of.Binary != nil:
		return cel.BinaryBinding(func(a, b ref.Val) ref.Val {
			if price([]ref.Val{a, b}) > limit {
				return costly()
			}
			return of.Binary(a, b)
		})
	}
	return cel.FunctionBinding(func(args ...ref.Val) ref.Val {
		if price(args) > limit {
			return costly()
		}
		return of.Function(args...)
	})
}

func priceOfReplace(args []ref.Val) uint64 {
	text, old, latest := textOf(args[0]), textOf(args[1]), textOf(args[2])
	result := len(text)
	if longer := len(latest) - len(old); longer > 0 {
		result += longer * strings.Count(text, old)
	}
	return uint64(len(text))*uint64(max(1, len(old)))/10 + uint64(result)
}

func priceOfJoin(args []ref.Val) uint64 {
	separator := 0
	if len(args) > 1 {
		separator = len(textOf(args[1]))
	}
	return textSize(args[0], CostLimit+1) + size(args[0])*uint64(separator)
}

func priceOfFormat(args []ref.Val) uint64 {
	return uint64(len(textOf(args[0]))) + textSize(args[1], CostLimit+1)
}

func priceOfSearch(args []ref.Val) uint64 {
	return uint64(len(textOf(args[0]))) * uint64(len(textOf(args[1]))) / 10
}

func textOf(v ref.Val) string {
	text, _ := v.(types.String)
	return string(text)
}

// textSize is about how long a value is as text. It looks no further than most.
func textSize(v ref.Val, most uint64) uint64 {
	const scalar = 8
	total := uint64(scalar)
	switch v := v.(type) {
	case types.String:
		total = uint64(len(v))
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && total < most; {
			key := it.Next()
			total += textSize(key, most-total)
			total += textSize(v.Get(key), most-min(total, most))
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && total < most; {
			total += textSize(it.Next(), most-total)
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
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
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
		all = append(all, &interpreter.RegexOptimization{Function: overloads.Matches, OverloadID: overload, RegexIndex: 1, Factory: compile})
	}
	return cel.OptimizeRegex(all...)
}
