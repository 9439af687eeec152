package expression

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var environment = NewEnvironment(CostLimit, map[string]Type{"body": Any, "headers": Texts})

func evaluated(t testing.TB, source, body string) (string, error) {
	t.Helper()
	program, err := environment.Compile(source, Text, Int, Uint, Number, Bool, Object)
	require.NoError(t, err, source)
	parsed, err := Parse([]byte(body))
	require.NoError(t, err, body)
	value, steps, err := program.JSON(map[string]any{"body": parsed, "headers": map[string]string{"a": "b"}})
	require.LessOrEqual(t, steps, uint64(CostLimit))
	return string(value), err
}

func TestJSON_Values(t *testing.T) {
	t.Parallel()
	const body = `{"b": {"z": 1, "a": [null, true, "é\n\u2028"]}, "large": 9007199254740993, "half": 2.50, "big": ` +
		`1e30, "tiny": 1e-9, "neg": -0.5, "n": null}`
	for source, want := range map[string]string{
		`body.b`: `{"a":[null,true,"é\n` + "\u2028" + `"],"z":1}`, `body.large`: `9007199254740993`,
		`body.half`: `2.5`, `body.big`: `1e+30`, `body.tiny`: `1e-09`, `body.neg`: `-0.5`, `body.n`: `null`,
		`body.?missing`: `null`, `body.?half`: `2.5`, `headers["a"]`: `"b"`, `headers`: `{"a":"b"}`,
		`string(body.large) + "x"`:              `"9007199254740993x"`,
		`{"b": body.?missing, "a": body.?half}`: `{"a":2.5,"b":null}`, `double(body.large) / 2.0 > 1.0`: `true`,
		`timestamp("2026-01-02T03:04:05Z")  == timestamp("2026-01-02T03:04:05Z")`: `true`,
		`body.b.a.map(x, x == true)[1]`:                                           `true`,
		`{"d": duration("90s")}`:                                                  `{"d":"90s"}`, `7u`: `7`,
		`"A,B".lowerAscii().split(",")[1]`: `"b"`,
	} {
		got, err := evaluated(t, source, body)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

func TestJSON_Errors(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]error{
		`body.missing`: ErrAbsent, `body.missing.x`: ErrAbsent, `body.l[5]`: ErrAbsent, `headers["x"]`: ErrAbsent,
		`body.s + 1`: errType, `1 / body.zero`: errFailed, `int(body.s)`: errFailed, `{"x": bytes(body.s)}`: errResult,
		`1.0 / double(body.zero)`: errResult,
		`{"a\x00": 1}`:            errNUL,
		`json(body.s)`:            errNotJSON, `json("1 2")`: errNotJSON, `json('"\\u0000"')`: errNotJSON,
		`form(body.s + "%")`: errNotForm,
		`form("a=%00")`:      errNUL, `json(body.l)`: errType, `form(body.zero)`: errType, `digits(body.l)`: errType,
	} {
		_, err := evaluated(t, source, `{"s": "secret", "l": [1, 2], "zero": 0}`)
		require.ErrorIs(t, err, want, source)
		if err != nil {
			require.NotContains(t, err.Error(), "secret")
		}
	}
}

func TestBool_OnlyBooleans(t *testing.T) {
	t.Parallel()
	program, err := environment.Compile(`body`, Bool)
	require.NoError(t, err)
	value, _, err := program.Bool(map[string]any{"body": true})
	require.NoError(t, err)
	require.True(t, value)
	_, _, err = program.Bool(map[string]any{"body": "true"})
	require.ErrorIs(t, err, errType)
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	const body = `{"a": " ", "b": "B", "list": ["", "x", "y"], "objects": [{"k": 1}], "utm_source": "s", "utm_medium": "m", "n": 5,
		"pairs": [{"k": "a", "v": 1}, {"k": "a", "v": 2}, {"k": "b"}, {"k": "c", "v": ""}, {"k": 5, "v": 1}, "x"]}`
	for source, want := range map[string]string{
		`pick(body, ["a", "b"])`: `"B"`, `pick(body, ["missing"])`: `null`, `pick(body, ["list"])`: `"x"`,
		`pick(body, ["objects"])`: `[{"k":1}]`, `pick(body.n, ["a"])`: `null`,
		`pick(body.?missing.more, ["a"])`: `null`, `pick(headers, ["a"])`: `"b"`,
		`first([body.?missing, body.a, body.b])`: `"B"`, `first([])`: `null`,
		`only(body, ["utm_*", "n", "missing"])`:             `{"n":5,"utm_medium":"m","utm_source":"s"}`,
		`only(body.list, ["a"])`:                            `{}`,
		`omit(body, ["utm_*", "list", "objects", "pairs"])`: `{"a":" ","b":"B","n":5}`, `omit(null, [])`: `{}`,
		`merge([{"a": 1, "b": 2}, null, body.?missing, {"b": "", "c": 3}, {"a": 4}])`: `{"a":4,"b":2,"c":3}`,
		`pairs(body.pairs, "k", "v")`: `{"a":1}`, `pairs(body.?missing, "k", "v")`: `{}`, `pairs("x", "k", "v")`: `{}`,
		`words([body.b, body.a, null, body.?missing, "C "])`: `"B C"`, `words([])`: `""`,
		`minor(1250, "INR")`: `"12.50"`, `minor(-5, "KWD")`: `"-0.005"`, `minor(null, "INR")`: `""`,
		`json('{"a": [1, "x"]}').a[1]`: `"x"`, `json(body.?missing)`: `null`, `json(" 7 ")`: `7`, `json("")`: `null`,
		`form("?a=1&b=x%20y&a=%2B2")`: `{"a":["1","+2"],"b":"x y"}`, `form(body.?missing)`: `{}`,
		`digits("+91 (98765) ४३२१0")`: `"919876543210"`, `digits(9876543210)`: `"9876543210"`, `digits(body.?no)`: `""`,
		`minor("7", "JPY")`: `"7"`, `minor(12345, "CLF")`: `"1.2345"`,
	} {
		got, err := evaluated(t, source, body)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
	for _, source := range []string{
		`merge([5])`, `words([5])`, `minor(1.5, "INR")`, `minor(1, "1NR")`, `minor("x", "INR")`, `minor(1, body.n)`,
		`only(body, [dyn(5)])`, `json("{")`, `json(body.list)`, `json('{"a":1,"a":2}')`, `form("a=%zz")`,
		`form(5)`, `digits([])`,
	} {
		_, err := evaluated(t, source, body)
		require.Error(t, err, source)
	}
}

func TestPairs_CutsLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 60)
	got, err := evaluated(t, `pairs(body, "k", "v")`, `[{"k": "`+long+`1", "v": 1}, {"k": "`+long+`2", "v": 2}]`)
	require.NoError(t, err)
	require.JSONEq(t, `{"`+long[:100]+`": 1, "`+long+`2": 2}`, got,
		"a name is not truncated if two names would become equal")
}

// A country code before a number was refused as too costly: CEL takes the text of a number for unbounded.
func TestCompile_JoinsTextOfNumbers(t *testing.T) {
	t.Parallel()
	const body = `{"n": 9876543210, "list": [1, 2], "at": "2026-01-02T03:04:05Z"}`
	for source, want := range map[string]string{
		`"+91" + string(int(body.n))`:                           `"+919876543210"`,
		`string(size(body.list)) + " items"`:                    `"2 items"`,
		`string(uint(body.n)) + "u"`:                            `"9876543210u"`,
		`string(double(body.n) / 4.0) + "x"`:                    `"2.4691358025e+09x"`,
		`string(body.n > 5) + "?"`:                              `"true?"`,
		`string(timestamp(body.at)) + "!"`:                      `"2026-01-02T03:04:05Z!"`,
		`string(duration("90m")) + "!"`:                         `"5400s!"`,
		`[1, 2, 3].map(x, string(x)).join("-") + "."`:           `"1-2-3."`,
		`string(timestamp(body.at).getFullYear()) + "-" + "01"`: `"2026-01"`,
	} {
		got, err := evaluated(t, source, body)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

// A member of an element of a computed list was taken for unbounded, so that any function of it was refused as too
// costly.
func TestCompile_MembersOfComputedLists(t *testing.T) {
	t.Parallel()
	const body = `{"answers": [{"q": "name", "a": "Asha"}, {"q": "tel", "a": "98765 43210"}]}`
	for source, want := range map[string]string{
		`body.answers.filter(x, x.q == "tel")[0].a.replace(" ", "")`:     `"9876543210"`,
		`"+91 " + body.answers.filter(x, x.q == "tel")[0].a`:             `"+91 98765 43210"`,
		`body.answers.filter(x, x.q == "city")[?0].?a.orValue("") + "."`: `"."`,
		`first(body.answers.map(x, x.q == "name", x.a)).upperAscii()`:    `"ASHA"`,
		`[{"n": body.answers}].map(x, x.n[0].a + "!")[0]`:                `"Asha!"`,
	} {
		got, err := evaluated(t, source, body)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

// The estimate of the cost asked for the size of an element of which CEL knows the type alone, and panicked.
func TestCompile_ListsOfMembers(t *testing.T) {
	t.Parallel()
	got, err := evaluated(t, `[{"a": body.l}].map(x, {"a": [x.a, x.a]})[0].a == [[1], [1]]`, `{"l": [1]}`)
	require.NoError(t, err)
	require.Equal(t, "true", got)
}

// leaves and forms make random expressions: each # of a form is another expression, and v the variable of the innermost
// loop.
var leaves = []string{
	"1", "2.5", `"ab"`, "null", "true", "body", "headers", "body.l", "body.s", "{}", "[]", "v", "v", "v",
}
var forms = []string{
	"#.a", "#.?b", "#[#]", "#[?#]", "[#, #]", `{"a": #, "b": #}`, "#.map(v, #)", "#.map(v, #, #)", "#.filter(v, #)",
	"#.exists(v, #)", "#.transformList(i, v, #)", "#.transformMap(k, v, #)", "(# + #)", "(# == #)", "(# in #)",
	"(# ? # : #)", "#.orValue(#)", "#.optMap(v, #)", `pick(#, ["a"])`, "first([#, #])", "merge([#, #])",
	"words([#, #])", "json(#)", "form(#)", "digits(#)",
	`pairs(#, "a", "b")`, `omit(#, ["a*"])`, "minor(#, #)", "dyn(#)", "string(#)", "int(#)", "size(#)",
	`#.split(",").join("-")`, "#.replace(#, #)", "#.substring(#)", `"%s %d".format([#, #])`, "has(#.a)",
}

func expression(r *rand.Rand, depth int) string {
	if depth == 0 {
		return leaves[r.IntN(len(leaves))]
	}
	var b strings.Builder
	for i, text := range strings.Split(forms[r.IntN(len(forms))], "#") {
		if i > 0 {
			b.WriteString(expression(r, r.IntN(depth)))
		}
		b.WriteString(text)
	}
	return b.String()
}

// Whatever an owner writes is refused or evaluated within the limit, without a panic of the library that estimates its
// cost.
func TestCompile_RandomExpressions(t *testing.T) {
	t.Parallel()
	parsed, err := Parse(
		[]byte(
			`{"l": [1, {"a": "x", "b": ["y"]}], "a": {"a": ["q"], "b": "s"}, "s": "` + strings.Repeat("a,", maxText/2) +
				`"}`,
		),
	)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	compiled := 0
	for range 1500 {
		source := "dyn([body].map(v, " + expression(r, 1+r.IntN(5)) + "))"
		var steps uint64
		require.NotPanics(t, func() {
			program, err := environment.Compile(source, Any)
			if err != nil {
				return
			}
			compiled++
			_, steps, _ = program.JSON(map[string]any{"body": parsed, "headers": map[string]string{"a": "b"}})
		}, source)
		require.LessOrEqual(t, steps, uint64(CostLimit), source)
	}
	require.Greater(t, compiled, 100)
}

// Expressions whose run time or result has no bound do not compile.
func TestCompile_RejectsBombs(t *testing.T) {
	t.Parallel()
	doubled := "[1]"
	for range 24 {
		doubled += ".map(a, [a, a])"
	}
	growth := `"aaaaaaaaaa"`
	for range 12 {
		growth += `.replace("a", "aaaaaaaaaa")`
	}
	for name, source := range map[string]string{
		"three loops":       `body.a.all(x, body.b.all(y, body.c.all(z, x == y || y == z)))`,
		"doubling compared": doubled + " == " + doubled,
		"doubling, dynamic": "dyn(" + doubled + ") == dyn(" + doubled + ")",
		"string growth":     growth + ` == ""`,
		"input growth": `body.s.replace("a", "` + strings.Repeat("b", 1500) + `").replace("b", "` +
			strings.Repeat("c", 300) + `")`,
		"format growth": `"%.999999999f".format([1.5])`,
		"number growth": `(string(1) + "` + strings.Repeat("a", 500) + `")` +
			strings.Repeat(`.replace("a", "aaaaaaaaaa")`, 6),
		"long":              strings.Repeat("1+", 1200) + "1",
		"nested":            strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100),
		"nested lists":      "size(" + strings.Repeat("[", 100) + strings.Repeat("]", 100) + ")",
		"regexp repetition": `body.s.matches("(((a{30}){30}){30})")`,
		"regexp of 1000":    `body.s.matches("a{1000}")`,
		"regexp broken":     `body.s.matches("(")`,
		"regexp computed":   `body.s.matches(body.r)`,
		"NUL":               "1 \x00",
		"unknown function":  `open("/etc/passwd") == ""`,
		"no result":         ``,
	} {
		_, err := environment.Compile(source, Text, Int, Bool)
		require.Error(t, err, name)
		require.Less(t, len(err.Error()), 400, name)
	}
}

// The compiler assumes small inputs and cannot price dynamic types, so the cost limit also applies at run time.
func TestEval_StopsAtCost(t *testing.T) {
	t.Parallel()
	list := "[" + strings.Repeat(`"aaaaaaaaaaaaaaaaaaaaaaaa",`, maxValues-10) + `"b"]`
	text := `"` + strings.Repeat("a", 1<<20) + `"`
	doubled := "[body.l]"
	for range 17 {
		doubled += ".map(a, a + a)"
	}
	for name, source := range map[string]string{
		"loop":             `body.l.all(x, ` + strings.Repeat(`x != "c" && `, 15) + `x != "d")`,
		"two loops":        `body.l.all(x, body.l.all(y, x != "c" || y != "c"))`,
		"search in a loop": `body.l.all(x, !(x + "b" in body.l))`,
		"map":              `body.l.map(x, x + "b"` + strings.Repeat(` + "c"`, 15) + `).size()`,
		"replace":          `body.s.replace("a", "` + strings.Repeat("b", 100) + `")`,
		"concat": `[1, 2, 3, 4, 5, 6, 7, 8].map(x, body.s + body.s + body.s + body.s + body.s + ` +
			`body.s + body.s + body.s).size()`,
		"doubled lists":         doubled + ".size()",
		"doubled lists, looped": doubled + "[0].all(x, x == x)",
		"doubled texts":         strings.ReplaceAll(doubled, "body.l", "body.s") + ".size()",
	} {
		program, err := environment.Compile(source, Text, Int, Bool)
		if err != nil { // some versions of CEL reject it at compile time
			require.ErrorContains(t, err, "could cost more", name)
			continue
		}
		parsed, err := Parse([]byte(`{"l": ` + list + `, "s": ` + text + `}`))
		require.NoError(t, err)
		_, _, err = program.JSON(map[string]any{"body": parsed, "headers": map[string]string{}})
		require.ErrorIs(t, err, ErrCost, name)
	}
}

// The time and memory of one call may be a product of its arguments, and CEL counts them only after the call.
func TestEval_EstimatesCostBeforeCall(t *testing.T) { // not parallel: it measures allocations
	body := `{"s": "` + strings.Repeat("a", maxText) + `", "l": [` + strings.Repeat(`"",`, maxValues-10) +
		`""], "t": "a,b"}`
	for name, source := range map[string]string{
		"replace":        `body.s.replace("a", body.s)`,
		"replace some":   `body.s.replace("a", body.s, 30000)`,
		"replace member": `[{"a": body.s}].filter(x, true)[0].a.replace("a", body.s)`,
		"join":           `body.l.join(body.s)`,
		"format": `"` + strings.Repeat("%s", 150) + `".format([` + strings.Repeat("body.s, ", 149) +
			`body.s])`,
		"search":          `body.s.indexOf(body.s.substring(1, 20000) + "b")`,
		"search back":     `body.s.lastIndexOf("b" + body.s.substring(1, 20000))`,
		"regexp":          `body.s.matches("(a?){40}c")`,
		"regexp function": `matches(body.s, "(a?){40}c")`,
		"json":            `body.l.all(x, json("[" + body.s + "]") == 1)`,
		"form":            `body.l.all(x, form(body.s) != {})`,
		"regexps":         `body.l.all(x, !body.s.substring(0, 3000).matches("(a?){40}c"))`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := evaluated(t, source, body)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, ErrCost, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), name)
	}
	for source, want := range map[string]string{
		`body.t.replace(",", "-")`: `"a-b"`, `body.t.replace(",", "-", 0)`: `"a,b"`,
		`body.t.split(",").join("+")`: `"a+b"`, `body.t.split(",").join()`: `"ab"`,
		`"%s-%d".format([body.t, 7])`: `"a,b-7"`, `body.t.indexOf("b")`: `2`, `body.t.indexOf("b", 1)`: `2`,
		`body.t.lastIndexOf("a")`: `0`, `body.s.matches("^a+$")`: `true`, `matches(body.t, "^a.b$")`: `true`,
	} {
		got, err := evaluated(t, source, body)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

// A value may refer to a part of it many times, so that comparing it would not end.
func TestEval_ComparesSharedParts(t *testing.T) {
	t.Parallel()
	doubled := `optional.of({"a": [1, 1]})`
	for range 30 {
		doubled += `.optMap(x, {"a": [x.a, x.a]})`
	}
	for _, compared := range []string{
		`x.a == x.a`, `x.a != x.a`, `x.a in [x.a]`, `{"b": x} == {"b": x}`, `optional.of(x) == optional.of(x)`,
	} {
		_, err := evaluated(t, doubled+`.optMap(x, `+compared+`).orValue(false)`, `{}`)
		require.ErrorIs(t, err, ErrCost, compared)
	}
}

func TestEval_Costs(t *testing.T) {
	t.Parallel()
	list := func(n int, element string) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	body := `{"s": "` + strings.Repeat("a", 10_000) + `", "blank": "` + strings.Repeat(" ", 10_000) + `", "blanks": [` +
		list(500, `""`) +
		`], "objects": [` + list(500, `{"k": "x", "v": 1}`) + `], "m": {"k": 0`
	for i := range 999 {
		body += fmt.Sprintf(`, "k%d": %d`, i, i)
	}
	body += `}, "few": {"k": 0`
	for i := range 99 {
		body += fmt.Sprintf(`, "k%d": %d`, i, i)
	}
	body += `}}`
	for source, want := range map[string]uint64{
		`only(body.m, [` + list(20, `"z*"`) + `])`:                      2*1000 + 20 + 1000*20/10,
		`omit(body.m, [` + list(20, `"z*"`) + `])`:                      2*1000 + 20 + 1000*20/10,
		`size(omit(body.m, [` + list(20, `"z"`) + `]))`:                 2*1000 + 20 + 1000*20/10,
		`merge([` + list(3, `body.m`) + `])`:                            3 * 2 * 1000,
		`merge([` + list(3, `{"a": body.blank}`) + `])`:                 3 * 1000,
		`pairs(body.objects, "k", "v")`:                                 4 * 500,
		`pairs([` + list(3, `{"k": "a", "v": body.s}`) + `], "k", "v")`: 3 * 1000,
		`pick(body, [` + list(10, `"blank"`) + `]) == null`:             10 * 1000,
		`pick(body, [` + list(10, `"blanks"`) + `]) == null`:            10 * 500,
		`first(body.blanks) == null`:                                    500,
		`first([` + list(10, `body.blank`) + `]) == null`:               10 * 1000,
		`words([` + list(3, `body.s`) + `])`:                            3 * 1000,
		`minor(body.blank.size() > 0 ? body.s : "", "INR") == ""`:       1000,
		`body.m == body.m`:                                              2 * 2 * 1000,
		`body.m != body.m`:                                              2 * 2 * 1000,
		`body.m == body.few`:                                            0,
		`body.m == {}`:                                                  0,
		`dyn(body.m) != null`:                                           0,
		`body.s == body.s`:                                              1000,
		`body.s == "a"`:                                                 0,
		`body.few in body.objects`:                                      500 * 2 * 200,
		`"z" in body.blanks`:                                            500,
		`body.few.transformMap(k, v, v)`:                                100 * 100 / 4,
		`"%s".format([body.blanks])`:                                    500,
		`body.blanks.join(body.s.substring(0, 100))`:                    500 * 100,
	} {
		program, err := environment.Compile(source, Text, Int, Bool, Object)
		require.NoError(t, err, source)
		parsed, err := Parse([]byte(body))
		require.NoError(t, err)
		_, steps, _ := program.JSON(map[string]any{"body": parsed, "headers": map[string]string{}})
		require.GreaterOrEqual(t, steps, want, source)
		require.LessOrEqual(t, steps, want+want/10+1500, source)
	}
}

// A result may contain one value many times, so its size is not bounded by the cost.
func TestJSON_BoundsResult(t *testing.T) {
	t.Parallel()
	_, err := evaluated(t, `{"a": [1,2,3,4,5,6,7,8].map(x, [body.s, body.s, body.s, body.s, body.s])}`,
		`{"s": "`+strings.Repeat("a", 1<<20)+`"}`)
	require.ErrorIs(t, err, errLarge)
}

func TestParse_CutsLongTexts(t *testing.T) {
	t.Parallel()
	parsed, err := Parse([]byte(`"` + strings.Repeat("€", maxText) + `"`))
	require.NoError(t, err)
	require.Len(t, parsed, maxText-maxText%3)
	require.Equal(t, strings.Repeat("€", maxText/3), parsed)
}

func TestParse_BoundsValues(t *testing.T) {
	t.Parallel()
	list := func(n int) []byte { return []byte("[" + strings.Repeat("{},", n-2) + "1]") } // the list and n-1 elements
	_, err := Parse(list(maxValues))
	require.NoError(t, err)
	_, err = Parse(list(maxValues + 1))
	require.ErrorIs(t, err, errMany)
}

// All filters of an account read one body.
func TestLater_ParsesOnce(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"a": 1}`)
	read := Later(raw).(func() any)
	first := read()
	raw[2] = 'b'
	require.Equal(t, map[string]any{"a": int64(1)}, first)
	require.Equal(t, first, read())
	broken := Later([]byte(`{`)).(func() any)
	require.NotSame(t, broken(), broken(), "CEL writes into errors")
}

func FuzzCompile(f *testing.F) {
	for _, source := range []string{
		`body.a.exists(x, x.b == "c") ? pick(body, ["a"]) : null`, `merge([omit(body, ["a*"]), {"b": body.?c}])`,
		`minor(body.n, "INR")`, `pairs(body.l, "k", "v")`, `words([body.s, headers["a"]])`, `body.s.matches("a+")`,
		`"%s".format([body])`, `[1].map(a, [a, a])`, `body.l.transformMapEntry(i, v, {string(i): v})`,
		`optional.of(body).?s.orValue("x")`,
		`"a".replace("a", body.s)`,
	} {
		f.Add(source, []byte(`{"a": [{"b": "c"}], "s": "text", "n": 5, "l": [{"k": "x", "v": 1}]}`))
	}
	f.Fuzz(func(t *testing.T, source string, body []byte) {
		program, err := environment.Compile(source, Text, Object, Bool, Int, Number)
		if err != nil {
			require.Less(t, len(err.Error()), 1000)
			return
		}
		parsed, err := Parse(body)
		if err != nil {
			return
		}
		variables := map[string]any{"body": parsed, "headers": map[string]string{"a": "b"}}
		value, steps, err := program.JSON(variables)
		require.LessOrEqual(t, steps, uint64(CostLimit))
		if err != nil {
			return
		}
		require.True(t, value.IsValid())
		again, _, _ := program.JSON(variables)
		require.Equal(t, string(value), string(again))
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a": [1, -2.5e3, "x", null, true, {}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := Parse(raw); err == nil {
			require.True(t, jsontext.Value(raw).IsValid())
		}
	})
}

func TestEval_ConcurrentCostErrors(t *testing.T) {
	t.Parallel()
	program, err := environment.Compile(`body.s.replace("a", body.s)`, Text)
	require.NoError(t, err)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			_, _, err := program.JSON(map[string]any{
				"body": map[string]any{"s": strings.Repeat("a", maxText)}, "headers": map[string]string{},
			})
			assert.ErrorIs(t, err, ErrCost)
		})
	}
	running.Wait()
}

// The race detector found that the first compilation with an undeclared name wrote what other compilations read.
func TestCompile_Concurrent(t *testing.T) {
	t.Parallel()
	for range 10 {
		env := NewEnvironment(CostLimit, map[string]Type{"body": Any})
		var done sync.WaitGroup
		for _, source := range []string{
			`bodi.a`, `body.l.map(x, x.a)`, `body.l.filter(x, x.a).map(y, y)`, `hedders.a`,
		} {
			done.Go(func() { _, _ = env.Compile(source, Any) })
		}
		done.Wait()
	}
}
