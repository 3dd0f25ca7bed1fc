import { type Onceward } from "./index.js";
declare global {
    interface Window {
        onceward: Onceward;
    }
}
