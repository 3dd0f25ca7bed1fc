"use strict";
// The value of an `Onceward-Look` header.
Object.defineProperty(exports, "__esModule", { value: true });
exports.isLook = isLook;
const problem_js_1 = require("./problem.js");
/**
 * Returns whether the client asks for the stored response only, so that nothing may run. Throws `Rejected` for any other value than `true`
 * and `false`: the client wants to control whether the handler runs.
 */
function isLook(header = "false") {
    if (header === "true" || header === "false")
        return header === "true";
    throw new problem_js_1.Rejected((0, problem_js_1.createProblem)("bad_request", "Onceward-Look has to be true or false."));
}
