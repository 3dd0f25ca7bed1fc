import "./browser_script.js";
