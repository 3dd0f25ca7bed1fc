"use strict";
// Makes a submission take effect once, however often it is sent.
Object.defineProperty(exports, "__esModule", { value: true });
exports.Unknown = exports.stateEffect = exports.NotApplied = exports.anonymous = exports.Rejected = exports.Redeemed = exports.Onceward = exports.Replay = exports.Claim = void 0;
var claim_js_1 = require("./claim.js");
Object.defineProperty(exports, "Claim", { enumerable: true, get: function () { return claim_js_1.Claim; } });
Object.defineProperty(exports, "Replay", { enumerable: true, get: function () { return claim_js_1.Replay; } });
var onceward_js_1 = require("./onceward.js");
Object.defineProperty(exports, "Onceward", { enumerable: true, get: function () { return onceward_js_1.Onceward; } });
Object.defineProperty(exports, "Redeemed", { enumerable: true, get: function () { return onceward_js_1.Redeemed; } });
var problem_js_1 = require("./problem.js");
Object.defineProperty(exports, "Rejected", { enumerable: true, get: function () { return problem_js_1.Rejected; } });
var protection_js_1 = require("./protection.js");
Object.defineProperty(exports, "anonymous", { enumerable: true, get: function () { return protection_js_1.anonymous; } });
var statement_js_1 = require("./statement.js");
Object.defineProperty(exports, "NotApplied", { enumerable: true, get: function () { return statement_js_1.NotApplied; } });
Object.defineProperty(exports, "stateEffect", { enumerable: true, get: function () { return statement_js_1.stateEffect; } });
Object.defineProperty(exports, "Unknown", { enumerable: true, get: function () { return statement_js_1.Unknown; } });
