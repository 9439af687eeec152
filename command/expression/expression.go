// Package expression compiles and evaluates the expressions that callers write, in CEL (github.com/google/cel-spec). An
// expression has no side effects, sees only the given variables, and is bounded: at compilation by an estimate of its
// cost, at evaluation by its actual cost.
package expression

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/interpreter"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of an expression.
const (
	MaxLength = 2000    // characters
	CostLimit = 200_000 // in CEL's units: a step of a loop costs a few of them

	maxNodes       = 2000 // of its syntax tree, with macros expanded
	maxNesting     = 40   // of parentheses, lists and calls
	maxRegexpSize  = 200  // instructions of a compiled regular expression
	maxResultBytes = 1 << 20

	// The estimate assumes inputs of this size. At evaluation, larger ones meet CostLimit.
	assumedElements = 100
	assumedText     = 100

	maxScalarText = 40 // characters of the text of a number, a time or a truth value

	// maxText is how many bytes of an input's text an expression sees. A single call, such as one of a regular
	// expression, cannot be interrupted, so its input must be bounded. No field of a lead may be as long.
	maxText = 40 << 10
)

var (
	// ErrAbsent means that an expression reads a member that the input does not have.
	ErrAbsent = errors.New("reads a member that is not there")
	// ErrCost means that an evaluation was stopped because it cost too much.
	ErrCost = errors.New("costs too much to compute")
	// errFailed replaces all other errors of evaluations. Their own texts can quote the input, which may be personal.
	errFailed = errors.New("cannot be computed from this input")
	errType   = errors.New("applies an operator or function to a value of another type")
	errResult = errors.New("has a result that is not JSON")
	errNUL    = errors.New("has a result with NUL")
	// of the functions json and form
	errNotJSON = errors.New("reads a text that is not JSON")
	errNotForm = errors.New("reads a text that is not a query string")
	errLarge   = errors.New("has a result of more than 1 MiB")
)

// Type is the type of a variable or of a result.
type Type struct{ cel *cel.Type }

// Types.
var (
	Any    = Type{cel.DynType} // known at evaluation only
	Text   = Type{cel.StringType}
	Int    = Type{cel.IntType}
	Uint   = Type{cel.UintType}
	Number = Type{cel.DoubleType}
	Bool   = Type{cel.BoolType}
	Texts  = Type{cel.MapType(cel.StringType, cel.StringType)} // text by name
	Object = Type{cel.MapType(cel.StringType, cel.DynType)}
	List   = Type{cel.ListType(cel.DynType)}
)

// Environment has the names that expressions can use: variables, CEL's own functions and macros, its extensions for
// strings and for comprehensions over two variables, optional values, and the functions of this package. It is safe for
// concurrent use.
type Environment struct {
	env    *cel.Env
	guards *guards
}

// NewEnvironment returns an environment with variables of these types, in which an expression may cost up to a limit,
// of at most CostLimit.
func NewEnvironment(limit uint64, variables map[string]Type) *Environment {
	g := &guards{limit: limit}
	options := []cel.EnvOption{
		ext.Strings(), ext.TwoVarComprehensions(), cel.OptionalTypes(), g.functions(), g.texts(),
		cel.CostSizingStrategy(cost.AggregateSizingStrategy()),
		cel.ParserExpressionSizeLimit(MaxLength), cel.ParserRecursionLimit(maxNesting),
		cel.ExpressionNodeLimit(maxNodes), cel.RegexProgramSizeLimit(maxRegexpSize),
		cel.ASTValidators(cel.ValidateRegexLiterals()),
	}
	for name, t := range variables {
		options = append(options, cel.Variable(name, t.cel))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		panic(err) // the options are constants
	}
	// The first name that is not declared makes CEL's catalog of names, which concurrent compilations read without
	// synchronization.
	_, _ = env.Compile("undeclared")
	return &Environment{env, g}
}

// Program is a compiled expression. It is safe for concurrent use.
type Program struct{ program cel.Program }

// Compile compiles an expression whose result must be of one of these types, or of a type that is known at evaluation
// only. The error's text suits the author of the expression.
func (e *Environment) Compile(source string, results ...Type) (*Program, error) {
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("is empty")
	}
	if strings.ContainsRune(source, 0) {
		return nil, errors.New("must not contain NUL")
	}
	checked, issues := e.env.Compile(source)
	if issues.Err() != nil {
		return nil, firstIssue(issues)
	}
	if !typeFits(checked.OutputType(), results) {
		return nil, fmt.Errorf("must be %s, not %s", named(results), cel.FormatCELType(checked.OutputType()))
	}
	estimate, err := e.env.EstimateCost(checked, assumed{})
	limit := e.guards.limit
	if err != nil || estimate.Max > limit {
		return nil, fmt.Errorf("could cost more than %d steps with lists of %d elements", limit, assumedElements)
	}
	patterns, err := regexpsOf(checked)
	if err != nil {
		return nil, err
	}
	program, err := e.env.Program(checked, cel.EvalOptions(cel.OptOptimize), e.guards.comparisons(),
		patterns.guarded(limit),
		cel.CostTracking(actual{patterns, limit}), cel.CostTrackerOptions(e.guards.trackers...), cel.CostLimit(limit))
	if err != nil {
		return nil, errors.New("has a constant that is not valid")
	}
	return &Program{program}, nil
}

// firstIssue returns the first error of a compilation with its position, from 1.
func firstIssue(issues *cel.Issues) error {
	all := issues.Errors()
	first := slices.MinFunc(all, func(a, b *cel.Error) int {
		if a.Location.Line() != b.Location.Line() {
			return a.Location.Line() - b.Location.Line()
		}
		return a.Location.Column() - b.Location.Column()
	})
	message, _, _ := strings.Cut(first.Message, "\n")
	message, _, _ = strings.Cut(message, " expecting ") // a long list of tokens
	message = strings.TrimPrefix(message, "Syntax error: ")
	const most = 200
	if runes := []rune(message); len(runes) > most {
		message = string(runes[:most]) + "…"
	}
	if first.Location.Line() < 1 {
		return errors.New("is not valid: " + message)
	}
	return fmt.Errorf("is not valid at %d:%d: %s", first.Location.Line(), first.Location.Column()+1, message)
}

func typeFits(output *cel.Type, results []Type) bool {
	if output.Kind() == types.OpaqueKind && output.TypeName() == "optional_type" {
		output = output.Parameters()[0]
	}
	switch output.Kind() {
	case types.DynKind, types.AnyKind, types.TypeParamKind, types.NullTypeKind, types.ErrorKind:
		return true
	}
	if output.Kind() == types.MapKind {
		if key := output.Parameters()[0].Kind(); key != types.StringKind && key != types.DynKind &&
			key != types.TypeParamKind {
			return false
		}
	}
	return slices.ContainsFunc(results, func(t Type) bool { return t.cel.Kind() == output.Kind() })
}

func named(results []Type) string {
	names := make([]string, len(results))
	for i, t := range results {
		names[i] = cel.FormatCELType(t.cel)
	}
	return strings.Join(names, " or ")
}

// Bool evaluates an expression whose result is true or false.
func (p *Program) Bool(variables map[string]any) (value bool, steps uint64, err error) {
	result, steps, err := p.eval(variables)
	if err != nil {
		return false, steps, err
	}
	b, ok := result.(types.Bool)
	if !ok {
		return false, steps, errType
	}
	return bool(b), steps, nil
}

// JSON evaluates an expression and returns its result, and its cost. An optional without a value is null.
func (p *Program) JSON(variables map[string]any) (value jsontext.Value, steps uint64, err error) {
	result, steps, err := p.eval(variables)
	if err != nil {
		return nil, steps, err
	}
	value, err = toJSON(result)
	return value, steps, err
}

func (p *Program) eval(variables map[string]any) (result ref.Val, steps uint64, err error) {
	result, details, err := p.program.Eval(variables)
	if details != nil && details.ActualCost() != nil {
		steps = min(*details.ActualCost(), CostLimit)
	}
	if err != nil {
		return nil, steps, classified(err)
	}
	return plain(result), steps, nil
}

// classified maps an error of an evaluation to one that quotes nothing of the input.
func classified(err error) error {
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) || errors.Is(err, ErrCost) {
		return ErrCost
	}
	for _, known := range [...]error{errNotJSON, errNotForm} {
		if errors.Is(err, known) {
			return known
		}
	}
	switch text := err.Error(); {
	case strings.HasPrefix(text, "no such key"), strings.HasPrefix(text, "index out of bounds"):
		return ErrAbsent
	case strings.HasPrefix(text, "no such overload"), strings.HasPrefix(text, "no matching overload"):
		return errType
	}
	return errFailed
}

// assumed estimates the sizes of inputs.
type assumed struct{}

// EstimateCallCost bounds the text of a number, a time or a truth value, which CEL takes for unbounded, so that it can
// be put together with other text.
func (assumed) EstimateCallCost(_, overload string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	switch overload {
	case overloads.IntToString, overloads.UintToString, overloads.DoubleToString, overloads.BoolToString,
		overloads.TimestampToString, overloads.DurationToString:
		text := cost.RangedSizeEstimate(0, maxScalarText)
		return cost.NewCallEstimate(cost.FixedCostEstimate(1), &text)
	}
	return nil
}

func (assumed) EstimateSize(node cost.AstNode) *cost.SizeEstimate {
	if len(node.Path()) == 0 && (node.ComputedSize() != nil || !readsMember(node.Expr())) {
		return nil
	}
	size, text := cost.RangedSizeEstimate(0, assumedElements), cost.RangedSizeEstimate(0, assumedText)
	if node.Type().Kind() == types.StringKind {
		return &text
	}
	size.Key, size.Elem = &text, &text
	return &size
}

// readsMember reports whether an expression is a member of a value, such as x.y, x.?y or list.filter(e, e.z)[0].y.
// Without this, CEL takes a member for unbounded when it cannot follow it to an input: behind an optional one, and in
// an element of a computed list. A member of an object that the expression made itself may be larger than an input;
// that meets the limits of the evaluation.
func readsMember(e ast.Expr) bool {
	if e == nil { // an element of which CEL knows the type alone
		return false
	}
	switch e.Kind() {
	case ast.SelectKind:
		return true
	case ast.CallKind:
		function := e.AsCall().FunctionName()
		return function == operators.OptSelect || function == operators.OptIndex
	}
	return false
}
